"""A model with its encoder: from raw rows to probabilities."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import cached_property
from threading import Lock
from typing import Any, Final

import numpy as np
import pyarrow as pa
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from fieldwise.core.display import Shown, View
from fieldwise.core.errors import DataError, RunError
from fieldwise.core.hints import either
from fieldwise.core.resident import keep_freed
from fieldwise.core.schema import UNKNOWN
from fieldwise.data.encoder import Encoder
from fieldwise.data.row_encoder import RowEncoder
from fieldwise.data.unparsed import Unparsed
from fieldwise.models.factory_model import FactoryModel
from fieldwise.models.model import CTRModel
from fieldwise.models.stored import StoredModel

BATCH: Final = 65_536
"""Rows encoded at a time."""
_PART: Final = 4_096
"""Rows per forward pass; more take more memory and are not faster."""
THREADS: Final = 8
"""Maximum number of threads of a prediction: each needs memory for its rows, and one reads all files."""


class Probability(nn.Module):
    """Maps ids of the needed fields to probabilities; every serving format contains this module."""

    def __init__(self, model: CTRModel | StoredModel) -> None:
        super().__init__()
        self.model = model
        schema, needs = model.schema, set(model.needs)
        needed = [field.name in needs for field in schema.fields for _ in range(field.length)]
        self.places = sum(needed)
        """Number of ids per row."""
        # places of unneeded fields read the UNKNOWN that `forward` appends
        order = np.where(needed, np.cumsum(needed) - 1, self.places)
        self.register_buffer("_order", None if all(needed) else torch.from_numpy(order), persistent=False)

    def forward(self, ids: Tensor) -> Tensor:
        """Maps ids (B, places) to probabilities (B,)."""
        if self._order is not None:
            ids = self._of_all_fields(ids)
        logits: Tensor = self.model(ids)
        return torch.sigmoid(logits)

    def _of_all_fields(self, ids: Tensor) -> Tensor:
        order = self.get_buffer("_order")
        if torch.is_inference_mode_enabled():  # the encoder's ids lie field by field
            return nn.functional.pad(ids.t(), (0, 0, 0, 1), value=UNKNOWN).index_select(0, order).t()
        return nn.functional.pad(ids, (0, 1), value=UNKNOWN)[:, order]


class Predictor(Shown):
    """Predicts clicks for raw rows, with the vocabularies and bins of the model's training data."""

    def __init__(self, model: CTRModel | StoredModel, encoder: Encoder | None) -> None:
        self.model = model
        self._encoder = None if encoder is None else needed_by(model, encoder)
        self.probability = Probability(model).eval()
        self._forward: AbstractContextManager[Any] = nullcontext()

    @property
    def given_encoder(self) -> Encoder | None:
        """The encoder, or None for a model that reads only ids."""
        return self._encoder

    @property
    def encoder(self) -> Encoder:
        """The encoder of the fields that the model needs."""
        if self._encoder is None:
            raise RunError(
                "This model was exported without vocabularies, so it reads only ids. "
                + either(
                    "Name a folder that has them, such as RUN/seed-0/compact/BUDGET.",
                    "Export it with them: fw.export(model, folder, data.encoder).",
                )
            )
        return self._encoder

    @property
    def columns(self) -> tuple[str, ...]:
        """The required raw columns."""
        return self.encoder.columns

    def view(self) -> View:
        """The model, and the fields that it reads."""
        size, needs = self.model.size(), set(self.model.needs)
        layout = self.model.layout
        rules = {f.name: f.rule for f in self._encoder.fields} if self._encoder is not None else {}
        rows = tuple(
            (f.name, f"{f.cardinality:,}", width, rules[f.name].kind if f.name in rules else "ids")
            for f, width in zip(layout.schema.fields, layout.widths, strict=True)
            if f.name in needs
        )
        return View(
            f"Predictor: {type(self.model.settings).__name__}, {size.columns:,} columns, {size.embedding:,} embedding "
            f"parameters, {size.dense:,} dense weights",
            (f"Reads {len(rows)} of {len(layout.schema)} fields",),
            ("field", "cardinality", "width", "kind"),
            rows,
        )

    def predict(self, rows: Any) -> NDArray[np.float32]:
        """Returns the probabilities (rows,) of raw rows.

        Rows are a dataframe or anything else with an Arrow stream, a dict of columns, a list of dicts, or one row as
        a dict of single values.
        """
        encoder, one = self.encoder, self._rows(rows)
        if one is not None:
            return self.of_ids(one)
        unparsed = Unparsed(encoder.fields)
        parts = [self.of_ids(encoder.encode_table(part, unparsed)) for part in _parts(encoder.table(rows))]
        unparsed.check()
        return np.concatenate(parts) if parts else np.empty(0, np.float32)

    @cached_property
    def _rows(self) -> RowEncoder:
        return RowEncoder(self.encoder)

    def counting(self, rows: Any, unparsed: Unparsed) -> NDArray[np.float32]:
        """Like `predict`, but counts texts that are no times instead of refusing them."""
        return self.of_ids(self.encoder.encode(rows, unparsed))

    @contextmanager
    def in_threads(self) -> Iterator[int]:
        """A context for predictions in several threads, with their number; each operation of torch then uses one.

        Freed memory stays with the process. The forward pass of a user's own module is never called twice at a time.
        """
        given = torch.get_num_threads()
        keep_freed()
        own = isinstance(self.model, FactoryModel)
        torch.set_num_threads(given if own else 1)
        self._forward = Lock() if own else nullcontext()
        try:
            yield min(given, THREADS)
        finally:
            torch.set_num_threads(given)
            self._forward = nullcontext()

    def of_ids(self, ids: NDArray[np.int32]) -> NDArray[np.float32]:
        """Returns the probabilities (rows,) of rows encoded by `encoder`."""
        device = next(self.model.parameters()).device
        rows = torch.from_numpy(ids)
        with torch.inference_mode(), self._forward:
            if len(ids) <= _PART and device.type == "cpu":
                found: NDArray[np.float32] = self.probability(rows).numpy()
            else:
                parts = [self.probability(part.to(device)).cpu() for part in rows.split(_PART)]
                found = torch.cat(parts).numpy()
        if np.isnan(found).any():
            raise RunError(
                f"The model predicts NaN for {np.isnan(found).sum():,} rows: its weights are invalid. Train it again."
            )
        return found


def needed_by(model: CTRModel | StoredModel, encoder: Encoder) -> Encoder:
    """Returns the encoder of the fields that a model needs; refuses one that lacks a field or has another's ids."""
    needs = set(model.needs)
    fields = [field for field in model.schema.fields if field.name in needs]
    found = Encoder([field for field in encoder.fields if field.name in needs])
    if list(found.schema.fields if found.fields else ()) != fields:
        raise DataError("The encoder's fields differ from the model's. Pass the encoder of its training dataset.")
    return found


def _parts(table: pa.Table) -> Iterator[pa.Table]:
    return (table.slice(start, BATCH) for start in range(0, table.num_rows, BATCH))
