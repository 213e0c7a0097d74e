"""Builds two models of DeepCTR-Torch from the exported list, and fits them for an epoch.

Runs where deepctr-torch is installed, as `python by_deepctr.py FOLDER`.
"""

import json
import sys
from pathlib import Path

import numpy as np
from deepctr_torch.inputs import SparseFeat, VarLenSparseFeat, get_feature_names
from deepctr_torch.models import DCN, WDL


def main(folder: Path) -> None:
    """Prints ok for each model."""
    given = json.loads((folder / "deepctr.json").read_text())
    columns = [SparseFeat(**entry) for entry in given["sparse"]]
    columns += [
        VarLenSparseFeat(SparseFeat(**entry["sparsefeat"]), maxlen=entry["maxlen"], combiner=entry["combiner"])
        for entry in given["several"]
    ]
    draw = np.random.default_rng(0)
    rows = {
        column.name: draw.integers(1, column.vocabulary_size, (64, column.maxlen) if hasattr(column, "maxlen") else 64)
        for column in columns
    }
    clicks = draw.integers(0, 2, 64)
    assert set(get_feature_names(columns)) == set(rows)
    for build in (WDL, DCN):
        model = build(columns, columns, dnn_hidden_units=(8,), device="cpu")
        widths = {name: table.embedding_dim for name, table in model.embedding_dict.items()}
        assert widths == {column.name: column.embedding_dim for column in columns}
        model.compile("adam", "binary_crossentropy")
        model.fit(rows, clicks, batch_size=32, epochs=1, verbose=0)
        assert model.predict(rows, 32).shape == (64, 1)
        print(f"ok: {build.__name__} {sum(widths.values())} columns")  # noqa: T201


if __name__ == "__main__":
    main(Path(sys.argv[1]))
