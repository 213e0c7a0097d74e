"""The part of an ONNX graph that turns raw values into ids: vocabularies and bins as tensors, no loop."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx_ir as ir
import pyarrow as pa
from numpy.typing import NDArray
from onnx_ir.tape import Tape

from fieldwise.core.schema import PADDING, UNKNOWN
from fieldwise.data.encoder import Encoder
from fieldwise.data.field_encoder import FieldEncoder
from fieldwise.exports.bins import Steps, steps_of
from fieldwise.exports.inputs import NULL_WHOLE, Input, Kind, inputs_of, splits_in_graph

_TYPES = {"text": ir.DataType.STRING, "whole": ir.DataType.INT64, "number": ir.DataType.DOUBLE}
_DAY, _HOUR = 86_400, 3_600


class Front:
    """Records nodes from raw inputs to ids."""

    def __init__(self, encoder: Encoder) -> None:
        self.tape = Tape()
        self.inputs: dict[str, ir.Value] = {}
        self._constants: dict[tuple[Any, ...], ir.Value] = {}
        self.ids = self._fields(list(zip(encoder.fields, inputs_of(encoder), strict=True)))
        """(B, places), int32"""

    def _fields(self, pairs: Sequence[tuple[FieldEncoder, Input]]) -> ir.Value:
        """Returns the ids of all fields; binned fields with one number per row share one binary search."""
        binned = [j for j, (field, entry) in enumerate(pairs) if field.rule.is_number and not entry.several]
        parts, places = [], []
        if binned:
            columns = [self._column(self._input(pairs[j][1])) for j in binned]
            parts.append(self._binned(self._op("Concat", *columns, axis=1), [steps_of(pairs[j][0]) for j in binned]))
            places += [(j, 0) for j in binned]
        for j, (field, entry) in enumerate(pairs):
            if j not in binned:
                parts.append(self._several(field, entry) if field.several else self._single(field, entry))
                places += [(j, i) for i in range(field.length)]
        order = sorted(range(len(places)), key=places.__getitem__)
        joined = self._op("Concat", *parts, axis=1)
        return self._op("Cast", self._op("Gather", joined, self._const(order), axis=1), to=ir.DataType.INT32.value)

    def _single(self, field: FieldEncoder, entry: Input) -> ir.Value:
        """Encodes one value per row: (B,) to (B, length)."""
        ids = self._column(self._known(field, entry, self._input(entry)))
        if field.length == 1:
            return ids
        return self._op("Pad", ids, self._const([0, 0, 0, field.length - 1]), self._const(PADDING))

    def _several(self, field: FieldEncoder, entry: Input) -> ir.Value:
        """Encodes several values per row, split here or given as a list: (B, length), padded with PADDING."""
        if splits_in_graph(field):
            split = {"delimiter": field.rule.separator}
            values, counts = self.tape.op_multi_out("StringSplit", [self._input(entry)], split, num_outputs=2)
            counts = self._op("Max", counts, self._const(1))  # empty text is one value
        else:
            values, counts = self._input(entry), self._input(entry, lengths=True)
        ids = self._known(field, entry, values)  # (B, K)
        rest = _id_of(field, "") if splits_in_graph(field) else UNKNOWN
        ids = self._op("Pad", ids, self._const([0, 0, 0, field.length]), self._const(rest))
        ids = self._op("Slice", ids, self._const([0]), self._const([field.length]), self._const([1]))
        there = self._op("Less", self._const([range(field.length)]), self._column(counts))
        return self._op("Where", there, ids, self._const(PADDING))

    def _known(self, field: FieldEncoder, entry: Input, values: ir.Value) -> ir.Value:
        """Returns the ids of values of any shape."""
        if field.rule.is_number:
            last = self._op("Unsqueeze", values, self._const([-1]))
            return self._op("Squeeze", self._binned(last, [steps_of(field)]), self._const([-1]))
        if entry.kind != "time":
            return self._looked_up(field, entry.kind, values, entry.null)
        null = self._op("Equal", values, self._const(NULL_WHOLE))
        part = self._op("Where", null, self._const(NULL_WHOLE), self._time_part(field, values))
        return self._looked_up(field, "whole", part, None)

    def _looked_up(self, field: FieldEncoder, kind: Kind, values: ir.Value, null: str | None) -> ir.Value:
        """Looks values up in the vocabulary with a hash table; unseen values become `unknown`."""
        keys = {"text": null, "whole": NULL_WHOLE, "number": math.nan}
        vocabulary = field.vocabulary.values
        known = vocabulary.cast(pa.string()) if kind == "text" else vocabulary
        ids = {value: id_ for id_, value in enumerate(known.to_pylist(), 1)}
        ids[keys[kind]] = ids.pop(None, UNKNOWN)  # the null key is not a value
        if kind == "text":  # callers of the graph may write null as the files of training did
            ids |= dict.fromkeys(field.cells.nulls, ids[null])
        attributes = {
            "keys_tensor": _tensor(list(ids), _TYPES[kind]),
            "values_tensor": _tensor(list(ids.values()), ir.DataType.INT64),
            "default_tensor": _tensor([UNKNOWN], ir.DataType.INT64),
        }
        return self.tape.op("LabelEncoder", [values], attributes, domain="ai.onnx.ml")

    def _time_part(self, field: FieldEncoder, seconds: ir.Value) -> ir.Value:
        """Returns the hour of the day, the weekday (Monday is 0), or 1 on Saturday and Sunday."""
        second = self._op("Mod", seconds, self._const(_DAY))
        if field.rule.kind == "hour":
            return self._op("Div", second, self._const(_HOUR))
        day = self._op("Div", self._op("Sub", seconds, second), self._const(_DAY))
        weekday = self._op("Mod", self._op("Add", day, self._const(3)), self._const(7))  # 1970 began on a Thursday
        if field.rule.kind == "weekday":
            return weekday
        return self._op("Cast", self._op("Less", self._const(4), weekday), to=ir.DataType.INT64.value)

    def _binned(self, numbers: ir.Value, steps: Sequence[Steps]) -> ir.Value:
        """Returns the ids of numbers (..., n) with one table of steps per column: one binary search for all n."""
        depth = max(1, max(len(s.edges) for s in steps).bit_length())
        size = 2**depth
        edges = np.concatenate([_padded(s.edges, size, np.nan) for s in steps])  # no number is >= NaN
        ids = np.concatenate([_padded(s.ids, size, UNKNOWN) for s in steps])
        starts, table = size * np.arange(len(steps)), self._const(edges, ir.DataType.DOUBLE)
        place = self._const(starts)
        for step in (2**power for power in reversed(range(depth))):
            ahead = self._op("Add", place, self._const(step - 1))
            passed = self._op("LessOrEqual", self._op("Gather", table, ahead), numbers)
            place = self._op("Where", passed, self._op("Add", place, self._const(step)), place)
        found = self._op("Gather", self._const(ids), place)
        return self._op("Where", self._op("IsNaN", numbers), self._const([s.null for s in steps]), found)

    def _input(self, entry: Input, lengths: bool = False) -> ir.Value:
        name = entry.length_name if lengths else entry.name
        if name not in self.inputs:
            shape = ["batch", f"{entry.name}.values"] if entry.several and not lengths else ["batch"]
            kind = ir.DataType.INT64 if lengths else _TYPES.get(entry.kind, ir.DataType.INT64)
            self.inputs[name] = ir.val(name, kind, shape)
        return self.inputs[name]

    def _column(self, value: ir.Value) -> ir.Value:
        return self._op("Unsqueeze", value, self._const([1]))

    def _op(self, kind: str, *inputs: ir.Value, **attributes: Any) -> ir.Value:
        return self.tape.op(kind, inputs, attributes)

    def _const(self, values: Any, kind: ir.DataType = ir.DataType.INT64) -> ir.Value:
        array = np.asarray(
            [list(v) if isinstance(v, range) else v for v in values] if isinstance(values, list) else values
        )
        key = (array.shape, array.tobytes(), kind)
        if key not in self._constants:
            name = f"raw/constant_{len(self._constants)}"
            self._constants[key] = self.tape.initializer(ir.tensor(array.astype(kind.numpy()), kind, name))
        return self._constants[key]


def _tensor(values: Any, kind: ir.DataType) -> ir.TensorProtocol:
    if kind == ir.DataType.STRING:
        return ir.StringTensor([text.encode() for text in values], shape=ir.Shape([len(values)]))
    return ir.tensor(np.asarray(values, kind.numpy()), kind)


def _padded(values: NDArray[Any], size: int, rest: float) -> NDArray[Any]:
    return np.pad(values, (0, size - len(values)), constant_values=rest)


def _id_of(field: FieldEncoder, text: str) -> int:
    return int(field.vocabulary.encode(pa.array([text]))[0])
