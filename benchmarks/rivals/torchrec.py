"""TorchRec: fused tables whose optimizer runs inside the backward pass; only steps, FM and DCN-V2."""

import warnings
from typing import Any, Final

import torch
from torch import Tensor, nn
from torch.nn import functional

warnings.filterwarnings("ignore")  # it imports deprecated parts of torch

from torchrec import EmbeddingBagConfig, KeyedJaggedTensor  # noqa: E402
from torchrec.modules.crossnet import CrossNet  # noqa: E402
from torchrec.modules.fused_embedding_modules import FusedEmbeddingBagCollection  # noqa: E402
from torchrec.optim.rowwise_adagrad import RowWiseAdagrad  # noqa: E402

from rivals.job import CROSS_LAYERS, HIDDEN, LEARNING_RATE, WIDTH, Contender, Job, trained  # noqa: E402

PACKAGES: Final = ("torchrec", "fbgemm-gpu-cpu")
NOTES: Final = (
    "row-wise Adagrad on tables, one number of state per row, Adam elsewhere; FM's weight of an id is column 17 of 20"
)
_ALIGN: Final = 4
"""The widths of its tables must be multiples of this."""
_TABLE_RATE: Final = 0.02


def prepare(job: Job) -> Contender:
    """Builds the model, and batches in its format."""
    if not job.ready:
        raise SystemExit("torchrec has no loader: it is measured only on steps")
    model = {"fm": FM, "dcnv2": DCNv2}[job.model](job)
    dense = torch.optim.Adam(model.head.parameters(), LEARNING_RATE)
    rows = [(_features(job, ids), torch.from_numpy(labels).float()) for ids, labels in job.batches()]
    losses = torch.zeros(len(rows))

    def run() -> None:
        for step, (features, labels) in enumerate(rows):
            loss = functional.binary_cross_entropy_with_logits(model(features), labels)
            dense.zero_grad()
            loss.backward()
            dense.step()
            losses[step] = loss.detach()

    return Contender(run, lambda: float(losses.mean()), trained(model))


class FM(nn.Module):
    """Pairwise products and first-order weights."""

    def __init__(self, job: Job) -> None:
        super().__init__()
        self.tables = _tables(job, WIDTH + _ALIGN)
        self.head = nn.ParameterDict({"bias": torch.zeros(1)})

    def forward(self, features: KeyedJaggedTensor) -> Tensor:
        """Logits (B,)."""
        found = self.tables(features).values().unflatten(1, (-1, WIDTH + _ALIGN))  # (B, F, 20)
        x, first = found[:, :, :WIDTH], found[:, :, WIDTH]
        pairs = x.sum(1).square() - x.square().sum(1)
        return 0.5 * pairs.sum(1) + first.sum(1) + self.head["bias"]


class DCNv2(nn.Module):
    """Its CrossNet and an MLP in parallel."""

    def __init__(self, job: Job) -> None:
        super().__init__()
        columns = len(job.names) * WIDTH
        self.tables = _tables(job, WIDTH)
        layers: list[nn.Module] = []
        for before, after in zip((columns, *HIDDEN), HIDDEN, strict=False):
            layers += [nn.Linear(before, after), nn.BatchNorm1d(after), nn.ReLU()]
        self.head = nn.ModuleDict(
            {
                "cross": CrossNet(columns, CROSS_LAYERS),
                "mlp": nn.Sequential(*layers),
                "out": nn.Linear(columns + HIDDEN[-1], 1),
            }
        )

    def forward(self, features: KeyedJaggedTensor) -> Tensor:
        """Logits (B,)."""
        v = self.tables(features).values()  # (B, S)
        return self.head["out"](torch.cat([self.head["cross"](v), self.head["mlp"](v)], dim=1)).squeeze(1)


def _tables(job: Job, width: int) -> FusedEmbeddingBagCollection:
    tables = [
        EmbeddingBagConfig(name=f"table_{name}", embedding_dim=width, num_embeddings=cardinality, feature_names=[name])
        for name, cardinality in zip(job.names, job.cardinalities, strict=True)
    ]
    fused = FusedEmbeddingBagCollection(tables, RowWiseAdagrad, {"lr": _TABLE_RATE})
    with torch.no_grad():
        for table in fused.embedding_bags.values():
            table.weight.normal_(0, 0.01)
    return fused


def _features(job: Job, ids: Any) -> KeyedJaggedTensor:
    values = torch.from_numpy(ids.T.copy()).flatten().long()  # field by field, one id per row
    features = KeyedJaggedTensor.from_lengths_sync(list(job.names), values, torch.ones_like(values))
    features.offsets()
    return features
