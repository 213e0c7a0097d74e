"""Builds TorchRec's EmbeddingBagCollection from the exported config, plain and sharded, and pools some ids with it.

Runs where torchrec is installed, as `python by_torchrec.py FOLDER`; FOLDER holds the export, ids.npy and expected.npy.
"""

import json
import os
import sys
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist
from safetensors.torch import load_file
from torchrec import EmbeddingBagCollection, EmbeddingBagConfig, KeyedJaggedTensor, PoolingType
from torchrec.distributed import DistributedModelParallel
from torchrec.distributed.embeddingbag import EmbeddingBagCollectionSharder
from torchrec.distributed.planner import EmbeddingShardingPlanner, ParameterConstraints, Topology


def main(folder: Path) -> None:
    """Prints ok, or the distance of the pooled embeddings from the expected ones."""
    tables = json.loads((folder / "torchrec.json").read_text())["tables"]
    configs = [EmbeddingBagConfig(**{**table, "pooling": PoolingType[table["pooling"]]}) for table in tables]
    weights = load_file(folder / "torchrec.safetensors")
    own = {name: weight for name, weight in weights.items() if name.startswith("embedding_bags.")}
    places = json.loads((folder / "places.json").read_text())
    ids = torch.from_numpy(np.load(folder / "ids.npy")).long()
    expected = torch.from_numpy(np.load(folder / "expected.npy"))
    features = [table["feature_names"][0] for table in tables]
    there = torch.cat([ids[:, places[name]].ge(0).sum(1) for name in features])
    values = torch.cat([ids[:, places[name]][ids[:, places[name]] >= 0] for name in features])
    given = KeyedJaggedTensor(features, values, lengths=there)

    plain = EmbeddingBagCollection(tables=configs)
    plain.load_state_dict(own)
    torch.testing.assert_close(plain(given).values(), expected)

    os.environ.update(MASTER_ADDR="localhost", MASTER_PORT="29517", RANK="0", WORLD_SIZE="1")
    dist.init_process_group("gloo")
    wise = {table["name"]: ParameterConstraints(sharding_types=["table_wise"]) for table in tables}
    planner = EmbeddingShardingPlanner(topology=Topology(world_size=1, compute_device="cpu"), constraints=wise)
    plan = planner.plan(plain, [EmbeddingBagCollectionSharder()])
    sharded = DistributedModelParallel(plain, device=torch.device("cpu"), plan=plan, init_parameters=False)
    with torch.no_grad():
        for name, tensor in sharded.state_dict().items():
            tensor.local_shards()[0].tensor.copy_(own[name])
    torch.testing.assert_close(sharded(given).values(), expected)
    dist.destroy_process_group()
    print(f"ok: {len(configs)} tables")  # noqa: T201


if __name__ == "__main__":
    main(Path(sys.argv[1]))
