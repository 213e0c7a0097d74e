"""RecBole: its models, Trainer and data loader, with files in its format."""

from types import SimpleNamespace
from typing import Any, Final

import numpy as np
import pandas as pd
import torch
from recbole.config import Config
from recbole.data import create_dataset, data_preparation
from recbole.data.interaction import Interaction
from recbole.trainer import Trainer
from recbole.utils import FeatureType, get_model

from rivals.job import CROSS_LAYERS, HIDDEN, LABEL, LEARNING_RATE, WIDTH, Contender, Job, trained

PACKAGES: Final = ("recbole",)
NOTES: Final = "dense Adam; DeepFM's MLP without batch normalization; AutoInt left out, it is another network there"
_NAMES: Final = {"fm": "FM", "deepfm": "DeepFM", "dcnv2": "DCNV2"}
_HELD_OUT: Final = 1_000
"""Rows of the validation and test files, which it requires but does not read in training."""


def prepare(job: Job) -> Contender:
    """Builds the model and its Trainer, with Interactions in memory or its own loader."""
    config = _config(job)
    if job.ready:
        # from files it would size its tables by the ids in the rows, which are only some of all ids
        dataset, rows = _fields(job), [_interaction(job, *batch) for batch in job.batches()]
    else:
        _write(job)
        dataset = create_dataset(config)
        rows, _, _ = data_preparation(config, dataset)
    model = get_model(config["model"])(config, dataset)
    trainer = Trainer(config, model)
    total = 0.0

    def run() -> None:
        nonlocal total
        total = trainer._train_epoch(rows, 0)

    return Contender(run, lambda: total / len(rows), trained(model) - _unused(model, job))


def _config(job: Job) -> Config:
    values = {
        "data_path": str(job.folder), "benchmark_filename": ["train", "valid", "test"],
        "USER_ID_FIELD": "f0", "ITEM_ID_FIELD": "f1", "LABEL_FIELD": LABEL, "load_col": {"inter": [*job.names, LABEL]},
        "train_neg_sample_args": None, "train_batch_size": job.batch, "learner": "adam", "learning_rate": LEARNING_RATE,
        "embedding_size": WIDTH, "mlp_hidden_size": list(HIDDEN), "dropout_prob": 0.0,
        "cross_layer_num": CROSS_LAYERS, "structure": "parallel", "mixed": False, "reg_weight": 0,
        "eval_args": {"split": {"RS": [0.8, 0.1, 0.1]}, "order": "RO", "group_by": None, "mode": "labeled"},
        "metrics": ["AUC"], "valid_metric": "AUC", "use_gpu": False, "show_progress": False, "worker": 0,
        "state": "CRITICAL", "checkpoint_dir": str(job.folder / "saved"),
    }  # fmt: skip
    return Config(model=_NAMES[job.model], dataset="recbole", config_dict=values)


def _fields(job: Job) -> Any:
    """Returns the part of a dataset that its models read, with all ids of every field."""
    counts = dict(zip(job.names, job.cardinalities, strict=True))
    types = dict.fromkeys(job.names, FeatureType.TOKEN) | {LABEL: FeatureType.FLOAT}
    return SimpleNamespace(fields=lambda **_: [*job.names, LABEL], field2type=types, num=lambda name: counts[name])


def _interaction(job: Job, ids: Any, labels: Any) -> Interaction:
    columns = {name: torch.from_numpy(ids[:, j].astype(np.int64)) for j, name in enumerate(job.names)}
    return Interaction({**columns, LABEL: torch.from_numpy(labels.astype(np.float32))})


def _write(job: Job) -> None:
    """Writes the rows as RecBole's atomic files."""
    ids, labels = job.rows()
    frame = pd.DataFrame({f"{name}:token": ids[:, j] for j, name in enumerate(job.names)})
    frame[f"{LABEL}:float"] = labels
    folder = job.folder / "recbole"
    folder.mkdir(exist_ok=True)
    for part, rows in (("train", frame), ("valid", frame[:_HELD_OUT]), ("test", frame[:_HELD_OUT])):
        rows.to_csv(folder / f"recbole.{part}.inter", sep="\t", index=False)


def _unused(model: Any, job: Job) -> int:
    """Returns the number of unused first-order weights, which it allocates in every model."""
    return 0 if job.first_order else trained(model.first_order_linear)
