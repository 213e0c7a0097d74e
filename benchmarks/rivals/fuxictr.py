"""FuxiCTR: its embedding, layers, loader and training loop; models are built as in its model zoo."""

from typing import Any, Final

import numpy as np
import pandas as pd
import torch
from fuxictr.features import FeatureMap
from fuxictr.pytorch.dataloaders import RankDataLoader
from fuxictr.pytorch.layers import (
    CrossNetV2,
    FactorizationMachine,
    FeatureEmbedding,
    LogisticRegression,
    MLP_Block,
    ScaledDotProductAttention,
)
from fuxictr.pytorch.models import BaseModel
from torch import Tensor, nn

from rivals.job import (
    ATTENTION_LAYERS,
    CROSS_LAYERS,
    HEADS,
    HIDDEN,
    LABEL,
    LEARNING_RATE,
    WIDTH,
    Contender,
    Job,
    trained,
)

PACKAGES: Final = ("fuxictr", "ray")
NOTES: Final = "dense Adam; clips gradients, as its trainer always does; attention without a residual weight"


def prepare(job: Job) -> Contender:
    """Builds the model, with dicts of columns in memory or its own loader."""
    model = Rank(_feature_map(job), job)
    rows = [_columns(job, *batch) for batch in job.batches()] if job.ready else _loader(model.feature_map, job)

    def run() -> None:
        model.losses.clear()
        model.train_epoch(rows)

    return Contender(run, lambda: float(torch.stack(model.losses).mean()), trained(model))


class Rank(BaseModel):
    """One of the four models as a subclass of its BaseModel, which trains it."""

    def __init__(self, fields: FeatureMap, job: Job) -> None:
        never = 10**9  # disables validation inside an epoch
        super().__init__(fields, eval_steps=never, verbose=0, model_root=str(job.folder), metrics=["AUC"])
        self.losses: list[Tensor] = []
        self._max_gradient_norm, self._total_steps, self._stop_training = 10.0, 0, False  # as `fit` sets them
        self.embedding = FeatureEmbedding(fields, WIDTH)
        self.head = HEADS_BY_MODEL[job.model](fields)
        self.compile("adam", "binary_crossentropy", LEARNING_RATE)
        self.reset_parameters()
        self.model_to_device()

    def forward(self, inputs: dict[str, Tensor]) -> dict[str, Tensor]:
        """Returns probabilities under the key that its loss reads."""
        columns = self.get_inputs(inputs)
        return {"y_pred": self.output_activation(self.head(columns, self.embedding(columns)))}

    def compute_loss(self, *given: Any) -> Tensor:
        """Returns its loss, and records it."""
        loss: Tensor = super().compute_loss(*given)
        self.losses.append(loss.detach())
        return loss


class DeepFM(nn.Module):
    """FM and MLP."""

    def __init__(self, fields: FeatureMap) -> None:
        super().__init__()
        self.fm = FactorizationMachine(fields)
        self.mlp = MLP_Block(fields.sum_emb_out_dim(), list(HIDDEN), output_dim=1, batch_norm=True)

    def forward(self, columns: dict[str, Tensor], x: Tensor) -> Tensor:
        """Logits (B, 1)."""
        return self.fm(columns, x) + self.mlp(x.flatten(1))


class AutoInt(nn.Module):
    """Attention layers and first-order weights."""

    def __init__(self, fields: FeatureMap) -> None:
        super().__init__()
        self.linear = LogisticRegression(fields, use_bias=False)
        self.attention = nn.Sequential(*(Attention() for _ in range(ATTENTION_LAYERS)))
        self.out = nn.Linear(fields.num_fields * WIDTH, 1)

    def forward(self, columns: dict[str, Tensor], x: Tensor) -> Tensor:
        """Logits (B, 1)."""
        return self.out(self.attention(x).flatten(1)) + self.linear(columns)


class Attention(nn.Module):
    """Multiple heads over its ScaledDotProductAttention; the residual is the input."""

    def __init__(self) -> None:
        super().__init__()
        self.parts = nn.ModuleList(nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(3))
        self.attention = ScaledDotProductAttention()

    def forward(self, x: Tensor) -> Tensor:
        """Maps (B, F, D) to (B, F, D)."""
        parts = (part(x).unflatten(2, (HEADS, -1)).transpose(1, 2) for part in self.parts)
        mixed, _ = self.attention(*parts)
        return torch.relu(mixed.transpose(1, 2).flatten(2) + x)


class DCNv2(nn.Module):
    """Cross layers and MLP in parallel."""

    def __init__(self, fields: FeatureMap) -> None:
        super().__init__()
        columns = fields.sum_emb_out_dim()
        self.cross = CrossNetV2(columns, CROSS_LAYERS)
        self.mlp = MLP_Block(columns, list(HIDDEN), batch_norm=True)
        self.out = nn.Linear(columns + HIDDEN[-1], 1)

    def forward(self, _: dict[str, Tensor], x: Tensor) -> Tensor:
        """Logits (B, 1)."""
        v = x.flatten(1)
        return self.out(torch.cat([self.cross(v), self.mlp(v)], dim=1))


HEADS_BY_MODEL: Final = {"fm": FactorizationMachine, "deepfm": DeepFM, "autoint": AutoInt, "dcnv2": DCNv2}


def _feature_map(job: Job) -> FeatureMap:
    fields = FeatureMap("rows", str(job.folder))
    for name, cardinality in zip(job.names, job.cardinalities, strict=True):
        fields.features[name] = {"source": "", "type": "categorical", "vocab_size": cardinality}
    fields.labels, fields.default_emb_dim = [LABEL], WIDTH
    fields.num_fields = fields.get_num_fields()
    fields.set_column_index()
    return fields


def _columns(job: Job, ids: Any, labels: Any) -> dict[str, Tensor]:
    """Returns a batch as its loaders do: a dict of columns."""
    rows = np.column_stack([ids, labels]).astype(np.int64)
    return {name: torch.from_numpy(rows[:, j].copy()) for j, name in enumerate((*job.names, LABEL))}


def _loader(fields: FeatureMap, job: Job) -> Any:
    """Returns its loader for files in the format of its preprocessing; it runs in separate Ray processes."""
    ids, labels = job.rows()
    folder = job.folder / "fuxictr"
    folder.mkdir()
    columns = {name: ids[:, j].astype(np.int64) for j, name in enumerate(job.names)}
    pd.DataFrame({**columns, LABEL: labels.astype(np.int64)}).to_parquet(folder / "train.parquet")
    loaders = RankDataLoader(
        fields, stage="train", train_data=str(folder), batch_size=job.batch, shuffle=True, data_format="parquet"
    )
    return loaders[0]
