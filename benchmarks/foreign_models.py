"""Test quality of other libraries' models on MovieLens-1M: searched, uniform at the same size, and full.

    python benchmarks/foreign_models.py --raw ml-1m.zip --zoo FuxiCTR/model_zoo --out foreign_models.json

A plain PyTorch loop trains each library's module. All three start from the same trained full model; searched and
uniform are retrained after `compact()`. The searched columns are retrained twice, from the weights after the search and
from those of the full model; validation rows choose. The test uses the epoch with the best validation AUC. Needs
torch, numpy, pandas, pydantic, scikit-learn and the libraries, which can be in a folder on PYTHONPATH.
"""

import argparse
import copy
import io
import json
import time
import zipfile
from collections.abc import Callable, Iterator
from itertools import cycle
from pathlib import Path
from statistics import mean, stdev
from typing import Any

import numpy as np
import pandas as pd
import torch
from sklearn.metrics import roc_auc_score
from torch import Tensor, nn
from torch.nn import functional

import fieldwise as fw
from fieldwise.pruning.example import floats

FIELDS = ("user", "movie", "gender", "age", "occupation", "zip", "genres")
WIDTH, BATCH, RATE = 16, 2048, 1e-3
Rows = tuple[Tensor, Tensor]
"""Ids (N, fields), clicks (N,)."""


def read(raw: Path, device: str) -> tuple[list[int], dict[str, Rows]]:
    """Return cardinalities and splits 80 / 10 / 10, without ratings of 3; id 0 stands for unseen values."""
    columns = {
        "ratings": ["user", "movie", "rating", "timestamp"],
        "users": ["user", "gender", "age", "occupation", "zip"],
        "movies": ["movie", "title", "genres"],
    }
    with zipfile.ZipFile(raw) as archive:
        tables = {
            name: pd.read_csv(
                io.BytesIO(archive.read(f"ml-1m/{name}.dat")), sep="::", engine="python", names=names, dtype=str,
                encoding="latin-1",
            )
            for name, names in columns.items()
        }  # fmt: skip
    rows = tables["ratings"].merge(tables["users"], on="user").merge(tables["movies"], on="movie")
    rows = rows[rows["rating"] != "3"]
    clicks = (rows["rating"].astype(int) > 3).to_numpy(np.float32)
    part = np.random.default_rng(0).random(len(rows))
    ids, counts = [], []
    for field in FIELDS:
        values = rows[field].to_numpy(str)
        known, codes = np.unique(values, return_inverse=True)
        seen = np.zeros(len(known), dtype=bool)
        seen[codes[part < 0.8]] = True
        numbers = np.where(seen, np.cumsum(seen), 0)
        ids.append(numbers[codes])
        counts.append(int(seen.sum()) + 1)
    matrix = np.stack(ids, 1)
    bounds = {"train": (0, 0.8), "valid": (0.8, 0.9), "test": (0.9, 1)}
    splits = {}
    for name, (low, high) in bounds.items():
        own = (part >= low) & (part < high)
        splits[name] = (torch.tensor(matrix[own], device=device), torch.tensor(clicks[own], device=device))
    return counts, splits


Call = Callable[[Tensor], tuple[Any, ...]]
"""Maps ids (B, fields) to the arguments of a library's forward."""


def rechub_deepfm(counts: list[int], _: Path | None) -> tuple[nn.Module, Call]:
    """Build torch-rechub's DeepFM, which reads a dict of ids."""
    from torch_rechub.basic.features import SparseFeature
    from torch_rechub.models.ranking import DeepFM

    features = [SparseFeature(name, n, WIDTH) for name, n in zip(FIELDS, counts, strict=True)]
    model = DeepFM(features, features, {"dims": [64, 32], "dropout": 0.2})
    return model, lambda ids: ({name: ids[:, i] for i, name in enumerate(FIELDS)},)


def deepctr_xdeepfm(counts: list[int], _: Path | None) -> tuple[nn.Module, Call]:
    """Build DeepCTR-Torch's xDeepFM, which reads one float matrix."""
    from deepctr_torch.inputs import SparseFeat
    from deepctr_torch.models import xDeepFM

    columns = [SparseFeat(name, n, WIDTH) for name, n in zip(FIELDS, counts, strict=True)]
    model = xDeepFM(columns, columns, dnn_hidden_units=(64, 32), cin_layer_size=(32, 16), dnn_dropout=0.2)
    return model, lambda ids: (ids.float(),)


def fuxictr_finalmlp(counts: list[int], zoo: Path | None) -> tuple[nn.Module, Call]:
    """Build FuxiCTR's FinalMLP, which reads a dict of ids."""
    import importlib.util
    import tempfile

    from fuxictr.features import FeatureMap

    assert zoo is not None, "FuxiCTR's models need --zoo"
    features = FeatureMap("x", tempfile.mkdtemp())
    for name, n in zip(FIELDS, counts, strict=True):
        features.features[name] = {"source": "", "type": "categorical", "padding_idx": 0, "vocab_size": n}
    features.labels, features.default_emb_dim = ["label"], WIDTH
    features.num_fields = features.get_num_fields()
    features.set_column_index()
    spec = importlib.util.spec_from_file_location("FinalMLP", zoo / "FinalMLP/src/FinalMLP.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    model = module.FinalMLP(
        features, embedding_dim=WIDTH, optimizer="adam", loss="binary_crossentropy", metrics=["AUC"], verbose=0,
        task="binary_classification", model_root=tempfile.mkdtemp(), mlp1_hidden_units=[64, 32],
        mlp2_hidden_units=[64, 32], mlp1_dropout=0.2, mlp2_dropout=0.2, num_heads=2,
        use_fs=False,
    )  # fmt: skip
    return model, lambda ids: ({**{name: ids[:, i] for i, name in enumerate(FIELDS)}, "label": ids[:, 0].float()},)


MODELS = {
    "torch-rechub DeepFM": rechub_deepfm,
    "FuxiCTR FinalMLP": fuxictr_finalmlp,
    "DeepCTR-Torch xDeepFM": deepctr_xdeepfm,
}


def batches(rows: Rows, seed: int) -> Iterator[Rows]:
    """Yield the batches of one shuffled epoch."""
    order = torch.randperm(len(rows[1]), generator=torch.Generator().manual_seed(seed)).to(rows[1].device)
    for start in range(0, len(order), BATCH):
        own = order[start : start + BATCH]
        yield rows[0][own], rows[1][own]


def chance(model: nn.Module, call: Call, ids: Tensor) -> Tensor:
    """Return probabilities (B,); all three models end with a sigmoid."""
    return floats(model(*call(ids)), "model")[0].flatten()


def loss_of(model: nn.Module, call: Call, batch: Rows) -> Tensor:
    """Return the binary cross entropy."""
    return functional.binary_cross_entropy(chance(model, call, batch[0]).clamp(1e-7, 1 - 1e-7), batch[1])


@torch.no_grad()
def auc(model: nn.Module, call: Call, rows: Rows) -> float:
    """Return the AUC on a split."""
    model.eval()
    found = torch.cat([chance(model, call, ids) for ids in rows[0].split(65_536)])
    return float(roc_auc_score(rows[1].cpu().numpy(), found.cpu().numpy()))


def fit(model: nn.Module, call: Call, splits: dict[str, Rows], seed: int, epochs: int, patience: int) -> float:
    """Train, restore the best epoch, and return its validation AUC."""
    optimizer = torch.optim.Adam([w for w in model.parameters() if w.is_floating_point()], lr=RATE)
    best, kept, waited = auc(model, call, splits["valid"]), copy.deepcopy(model.state_dict()), 0
    for epoch in range(epochs):
        model.train()
        for batch in batches(splits["train"], seed * 1000 + epoch):
            optimizer.zero_grad()
            loss_of(model, call, batch).backward()
            optimizer.step()
        found = auc(model, call, splits["valid"])
        if found > best:
            best, kept, waited = found, copy.deepcopy(model.state_dict()), 0
        elif (waited := waited + 1) >= patience:
            break
    model.load_state_dict(kept)
    return best


def searched(
    model: nn.Module, call: Call, splits: dict[str, Rows], seed: int, epochs: int, budget: str
) -> tuple[nn.Module, nn.Module]:
    """Run the user's loop of docs/any-model.md; return the searched weights, and the pretrained ones, both narrow."""
    pretrained = copy.deepcopy(model.state_dict())
    pruner = fw.Pruner(model, call(splits["valid"][0][:256]), fw.searches.HAM(), budget, seed=seed)
    optimizer = torch.optim.Adam([w for w in model.parameters() if w.is_floating_point()], lr=RATE)
    model.train()
    valid = cycle(batches(splits["valid"], seed))
    for epoch in range(epochs):
        for batch in batches(splits["train"], seed * 1000 + 500 + epoch):
            own = next(valid)
            pruner.step(lambda own=own: loss_of(model, call, own))
            optimizer.zero_grad()
            loss_of(model, call, batch).backward()
            optimizer.step()
    small = pruner.compact()
    model.load_state_dict(pretrained)
    sliced = pruner.compact()
    pruner.remove()
    return small, sliced


def one(name: str, counts: list[int], splits: dict[str, Rows], seed: int, given: argparse.Namespace) -> dict[str, Any]:
    """Return test AUCs and sizes of one model and seed."""
    torch.manual_seed(seed)
    model, call = MODELS[name](counts, given.zoo)
    model = model.to(given.device)
    if "device" in vars(model):  # DeepCTR-Torch and FuxiCTR move inputs to the device in this attribute
        model.device = torch.device(given.device)
    started = time.perf_counter()
    fit(model, call, splits, seed, given.epochs, 2)
    found: dict[str, Any] = {"model": name, "seed": seed, "full": auc(model, call, splits["test"])}
    uniform = fw.Pruner(model, call(splits["valid"][0][:256]), fw.searches.Uniform(), given.budget)
    small = uniform.compact()
    uniform.remove()
    assert uniform.report is not None
    found["parameters"] = list(uniform.report.tables)
    found["uniform valid"] = fit(small, call, splits, seed, given.epochs, 2)
    found["uniform"] = auc(small, call, splits["test"])
    starts = searched(model, call, splits, seed, given.search_epochs, given.budget)
    for start, own in zip(("searched weights", "pretrained weights"), starts, strict=True):
        found[f"{start} valid"] = fit(own, call, splits, seed, given.epochs, 2)
        found[start] = auc(own, call, splits["test"])
    best = max(("searched weights", "pretrained weights"), key=lambda start: found[f"{start} valid"])
    found["searched"] = found[best]
    found["seconds"] = round(time.perf_counter() - started, 1)
    return found


def main() -> None:
    """Run all models and seeds, and store each result immediately."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--raw", type=Path, required=True, help="path to ml-1m.zip from GroupLens")
    parser.add_argument("--zoo", type=Path, help="path to FuxiCTR's model_zoo folder")
    parser.add_argument("--models", nargs="+", default=list(MODELS), choices=list(MODELS))
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--epochs", type=int, default=15)
    parser.add_argument("--search-epochs", type=int, default=4)
    parser.add_argument("--budget", default="25%")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--rows", type=int, help="at most N training rows, for a quick trial")
    parser.add_argument("--out", type=Path, required=True)
    given = parser.parse_args()
    counts, splits = read(given.raw, given.device)
    if given.rows:
        splits = {name: (ids[: given.rows], clicks[: given.rows]) for name, (ids, clicks) in splits.items()}
    record: dict[str, Any] = {"budget": given.budget, "torch": torch.__version__, "device": given.device, "runs": []}
    for name in given.models:
        for seed in range(given.seeds):
            record["runs"].append(one(name, counts, splits, seed, given))
            print(json.dumps(record["runs"][-1]), flush=True)
            given.out.parent.mkdir(parents=True, exist_ok=True)
            given.out.write_text(json.dumps(record, indent=1) + "\n")
        for kind in ("full", "uniform", "searched"):
            own = [run[kind] for run in record["runs"] if run["model"] == name]
            print(f"{name}, {kind}: {mean(own):.4f}" + (f" +- {stdev(own):.4f}" if len(own) > 1 else ""))


if __name__ == "__main__":
    main()
