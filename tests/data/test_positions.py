"""Values are found as Arrow finds them, and the vocabulary is hashed once."""

import pickle

import numpy as np
import pyarrow as pa
import pytest
from numpy.typing import NDArray

from fieldwise.data import positions as module
from fieldwise.data.field_encoder import FieldEncoder
from fieldwise.data.positions import Positions, positions
from fieldwise.data.rules import Rule
from fieldwise.data.vocabulary import Vocabulary


@pytest.fixture(autouse=True)
def _always(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_SMALL", -(2**40))


TEXTS = [None, "", "a", "b", "ä", "a\0", "07", "7", "x" * 300]


@pytest.mark.parametrize(
    ("known", "column"),
    [
        (TEXTS, [*TEXTS[::-1], "c", "a", None]),
        (TEXTS[1:], ["new", None, "7"]),
        (["a"], []),
        ([3, None, -5, 2**62, 0], [0, None, 3, 4, -5, 2**62, 3]),
        ([3, 1], [0, None, 3, 4]),
    ],
)
def test_values_are_found_as_by_arrow(known: list[str | int | None], column: list[str | int | None]) -> None:
    values = pa.array(known)
    rows = pa.array(column, values.type)
    assert Positions(values)(rows).tolist() == positions(rows, values).tolist()


def test_nothing_is_known() -> None:
    for kind, value in ((pa.string(), "a"), (pa.int64(), 1)):
        for known in (pa.array([], kind), pa.array([None], kind)):
            assert Positions(known)(pa.array([value, None], kind)).tolist() == [-1, -1]


def test_texts_with_equal_hashes_are_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_hashes", lambda texts: np.array([len(t or "") for t in texts.to_pylist()], np.int64))
    found = Positions(pa.array(["a", "bb", "ccc"]))
    assert found(pa.array(["bb", "xx", "a", "ccc", "dddd"])).tolist() == [1, -1, 0, 2, -1]
    assert Positions(pa.array(["a", "b"]))(pa.array(["b", "c", "a"])).tolist() == [1, -1, 0]  # as Arrow finds them


def test_the_vocabulary_is_hashed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    hashed, before = [], module._hashes

    def counted(texts: pa.Array) -> NDArray[np.int64]:
        hashed.append(len(texts))
        return before(texts)

    monkeypatch.setattr(module, "_hashes", counted)
    values = pa.array([f"v{i}" for i in range(500)])
    field = FieldEncoder("f", Rule(), Vocabulary(values, pa.nulls(500)))
    for _ in range(3):
        assert field.ids(pa.array(["v7", "v499", "no", None])).tolist() == [[8], [500], [0], [0]]
    assert [count for count in hashed if count == 500] == [500]


def test_hashes_stay_in_their_process() -> None:
    """The hash of a text is another one in another process, where all values would be unknown."""
    texts = pa.array([f"v{i}" for i in range(10_000)])
    used = Positions(texts)
    assert used(pa.array(["v7", "x"])).tolist() == [7, -1]
    assert "_texts" in vars(used)
    assert list(vars(pickle.loads(pickle.dumps(used)))) == ["_known"]
