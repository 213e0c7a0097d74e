"""DeepCTR-Torch: its models and its `fit`, without regularization."""

from typing import Any, Final

import torch
from deepctr_torch.inputs import SparseFeat
from deepctr_torch.models import DCN, AutoInt, DeepFM, basemodel

from rivals.job import ATTENTION_LAYERS, CROSS_LAYERS, HEADS, HIDDEN, WIDTH, Contender, Job, trained

PACKAGES: Final = ("deepctr-torch",)
NOTES: Final = "dense Adam; L2 off; FM is its DeepFM without MLP"


def prepare(job: Job) -> Contender:
    """Builds the model; a turn is its `fit` over its own loader or, if only steps are timed, batches in memory."""
    model = _model(job)
    model.compile("adam", "binary_crossentropy")  # its learning rate is 1e-3
    ids, labels = job.rows()
    count = len(labels)
    if job.ready:
        rows = [(torch.from_numpy(ids), torch.from_numpy(labels)) for ids, labels in job.batches()]
        basemodel.DataLoader = lambda **_: rows  # replaces its loader
        ids, labels = ids[:1], labels[:1]
    columns = [ids[:, j] for j in range(len(job.names))]

    def run() -> None:
        model.fit(list(columns), labels, batch_size=job.batch, epochs=1, verbose=0)

    def loss() -> float:
        total = float(model.history.history["loss"][-1]) * len(
            labels
        )  # undoes its division by the rows passed to `fit`
        return total / count

    return Contender(run, loss, trained(model))


def _model(job: Job) -> Any:
    features = [SparseFeat(name, c, WIDTH) for name, c in zip(job.names, job.cardinalities, strict=True)]
    linear = features if job.first_order else []
    none = {"l2_reg_embedding": 0, "l2_reg_dnn": 0}
    if job.model == "autoint":
        return AutoInt(linear, features, ATTENTION_LAYERS, HEADS, dnn_hidden_units=(), **none)
    none["l2_reg_linear"] = 0
    if job.model == "dcnv2":
        none["l2_reg_cross"] = 0
        return DCN(linear, features, CROSS_LAYERS, "matrix", dnn_hidden_units=HIDDEN, dnn_use_bn=True, **none)
    return DeepFM(linear, features, dnn_hidden_units=HIDDEN if job.model == "deepfm" else (), dnn_use_bn=True, **none)
