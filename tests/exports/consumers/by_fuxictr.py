"""Builds FuxiCTR's DCN-V2 and DeepFM from the exported specs, and takes a training step with each.

Runs where fuxictr is installed, as `python by_fuxictr.py FOLDER ZOO`; ZOO is the model_zoo of FuxiCTR's repository,
since its wheel holds neither model. The feature map is written as FuxiCTR's own preprocessing writes it.
"""

import importlib.util
import json
import sys
from pathlib import Path
from typing import Any

import torch
from fuxictr.features import FeatureMap

MODELS = {"DCNv2": "DCNv2/src/DCNv2.py", "DeepFM": "DeepFM/DeepFM_torch/src/DeepFM.py"}
SPECS = {"DCNv2": "fuxictr_flat.json", "DeepFM": "fuxictr_fm.json"}
SETTINGS = {
    "DCNv2": {"parallel_dnn_hidden_units": [8]},
    "DeepFM": {"hidden_units": [8]},
}


def feature_map(folder: Path, specs: dict[str, Any]) -> FeatureMap:
    """Returns all features as in a FuxiCTR dataset, with the exported specs."""
    features = []
    for field in json.loads((folder / "fields.json").read_text()):
        spec = {"source": "", "type": "categorical", "padding_idx": 0, "vocab_size": field["cardinality"]}
        if field["length"] > 1:
            spec |= {"type": "sequence", "max_len": field["length"]}
        features.append({field["name"]: spec})
    path = folder / "feature_map.json"
    path.write_text(json.dumps({"dataset_id": "x", "labels": ["click"], "features": features}))
    found = FeatureMap("x", str(folder))
    found.load(str(path), {"embedding_dim": 16, **specs})
    return found


def main(folder: Path, zoo: Path) -> None:
    """Prints ok, and the losses of two steps."""
    for name, path in MODELS.items():
        specs = json.loads((folder / SPECS[name]).read_text())
        features = feature_map(folder, specs)
        spec = importlib.util.spec_from_file_location(name, zoo / path)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        torch.manual_seed(0)
        model = vars(module)[name](
            features, embedding_dim=16, optimizer="adam", loss="binary_crossentropy", metrics=["AUC"], verbose=0,
            task="binary_classification", model_root=str(folder), **SETTINGS[name],
        )  # fmt: skip
        layers = model.embedding_layer.embedding_layer.embedding_layers
        widths = {entry["name"]: entry["embedding_dim"] for entry in specs["feature_specs"]}
        assert {key: layer.embedding_dim for key, layer in layers.items()} == widths
        rows = {
            key: torch.randint(1, entry["vocab_size"], (32, entry["max_len"]) if "max_len" in entry else (32,))
            for key, entry in features.features.items()
        }
        rows["click"] = torch.randint(0, 2, (32,)).float()
        model.train()
        model._max_gradient_norm = 10.0  # as its `fit` does
        losses = [float(model.train_step(rows)) for _ in range(2)]
        assert losses[1] < losses[0]
        print(f"ok: {name} {losses}")  # noqa: T201


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
