"""Writes the widths as the config files of other libraries."""

import json
import re
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file

from fieldwise.core.files import replacing, write_json, write_text
from fieldwise.exports.predictor import Predictor
from fieldwise.exports.tables import StoredTable, Tables


def to_json(tables: Tables, folder: Path) -> list[Path]:
    """Writes widths.json, for any other program."""
    write_json(folder / "widths.json", tables.to_json())
    return [folder / "widths.json"]


def to_fuxictr(tables: Tables, folder: Path) -> list[Path]:
    """Writes entries of FuxiCTR's model config: one file for flat models, one with lifts for FM-type models."""
    flat = [_fuxictr(table, None) for table in tables.tables]
    used = [table.field for table in tables.tables]
    written = {"fuxictr_flat.json": {"use_features": used, "feature_specs": flat}}
    if tables.common:
        lifted = [_fuxictr(table, tables.common) for table in tables.tables]
        written["fuxictr_fm.json"] = {"use_features": used, "feature_specs": lifted}
    for name, value in written.items():
        write_json(folder / name, value)
    return [folder / name for name in written]


def _fuxictr(table: StoredTable, common: int | None) -> dict[str, Any]:
    """Returns a feature's spec; FuxiCTR evaluates `feature_encoder` as Python."""
    encoders = ["layers.MaskedAveragePooling()"] if table.length > 1 else []
    spec: dict[str, Any] = {"name": table.field, "embedding_dim": table.aligned}
    if common:
        encoders.append(f"nn.Linear({table.aligned}, {common}, bias=False)")
        spec["emb_output_dim"] = common
    return {**spec, "feature_encoder": encoders} if encoders else spec


def to_deepctr(tables: Tables, folder: Path) -> list[Path]:
    """Writes the arguments of DeepCTR-Torch's SparseFeat, and of VarLenSparseFeat for several values per row."""
    sparse = [
        {"name": t.field, "vocabulary_size": t.cardinality, "embedding_dim": t.aligned}
        for t in tables.tables
        if t.length == 1
    ]
    several = [
        {
            "sparsefeat": {"name": t.field, "vocabulary_size": t.cardinality, "embedding_dim": t.aligned},
            "maxlen": t.length,
            "combiner": "mean",
        }
        for t in tables.tables
        if t.length > 1
    ]
    write_json(folder / "deepctr.json", {"sparse": sparse, "several": several})
    return [folder / "deepctr.json"]


def to_torcheasyrec(tables: Tables, folder: Path) -> list[Path]:
    """Writes the feature_configs of a TorchEasyRec pipeline as protobuf text, for ids encoded by this library."""
    parts = [
        "feature_configs {\n"
        "  id_feature {\n"
        f"    feature_name: {_quoted(table.field)}\n"
        f"    expression: {_quoted('user:' + table.field.replace(':', '_'))}\n"  # read as side:column
        f"    num_buckets: {table.cardinality}\n"
        f"    embedding_dim: {table.aligned}\n"
        '    pooling: "mean"\n'
        "  }\n"
        "}\n"
        for table in tables.tables
    ]
    write_text(folder / "torcheasyrec.config", "".join(parts))
    return [folder / "torcheasyrec.config"]


def to_torchrec(predictor: Predictor, tables: Tables, folder: Path) -> list[Path]:
    """Writes the arguments of TorchRec's EmbeddingBagConfig, and the weights under the names of its module.

    The lifts of FM-type models are included, as weights of linear layers named after the fields.
    """
    model, names = predictor.model, _module_names(tables)
    weights, configs = {}, []
    lift = dict(model.named_parameters()).get("head.lift.weight")  # (S, common)
    for table, name in zip(tables.tables, names, strict=True):
        j = model.layout.schema.names.index(table.field)
        padding = (0, table.aligned - table.width)
        found = torch.nn.functional.pad(model.embedding.table(j).detach(), padding)
        weights[f"embedding_bags.{name}.weight"] = found.contiguous()
        if lift is not None:
            own = lift.detach()[model.layout.targets[model.layout.starts[j] : model.layout.starts[j + 1]]]
            weights[f"projections.{name}.weight"] = torch.nn.functional.pad(own.T, padding).contiguous()
        configs.append(
            {
                "name": name,
                "embedding_dim": table.aligned,
                "num_embeddings": table.cardinality,
                "feature_names": [table.field],
                "pooling": "MEAN",
            }
        )
    with replacing(folder / "torchrec.safetensors") as work:
        save_file(weights, work)
    write_json(folder / "torchrec.json", {"tables": configs})
    return [folder / "torchrec.json", folder / "torchrec.safetensors"]


def _module_names(tables: Tables) -> list[str]:
    """Returns a valid module name for each table: torch allows no dots."""
    names = [re.sub(r"\W", "_", table.field) for table in tables.tables]
    return [name if names.count(name) == 1 else f"{name}_{j}" for j, name in enumerate(names)]


def _quoted(text: str) -> str:
    """Quotes text for protobuf's text format, whose escapes are a superset of those JSON uses here."""
    return json.dumps(text, ensure_ascii=False)
