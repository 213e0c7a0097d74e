import numpy as np
import pytest

from fieldwise.core.errors import DataError
from fieldwise.core.schema import Field, Layout, Schema


def test_a_field_never_has_more_columns_than_ids(schema: Schema) -> None:
    assert schema.layout(16).widths == (16, 2, 16, 7)


def test_layout_counts(schema: Schema) -> None:
    layout = Layout(schema, (2, 0, 1, 3))
    assert (layout.columns, layout.params) == (6, 2 * 50 + 30 + 3 * 7)
    assert layout.starts == (0, 2, 2, 3, 6)
    assert np.array_equal(layout.owners, [0, 0, 2, 3, 3, 3])
    assert np.array_equal(layout.rows, [50, 50, 30, 7, 7, 7])


def test_fields_of_equal_width_are_stacked_in_order(schema: Schema) -> None:
    rows = Layout(schema, (3, 0, 3, 1)).stacked_rows
    assert rows[0] == slice(0, 50)
    assert rows[2] == slice(50, 80)
    assert rows[3] == slice(0, 7)


def test_json_round_trips(schema: Schema) -> None:
    assert Schema.from_json(schema.to_json()) == schema


def test_impossible_schemas_are_refused(schema: Schema) -> None:
    with pytest.raises(DataError, match="cardinality 0"):
        Field("user", 0)
    with pytest.raises(DataError, match="Repeated field names: user"):
        Schema((Field("user", 2), Field("user", 3)))
    with pytest.raises(DataError, match="no fields"):
        Schema(())
    with pytest.raises(DataError, match="1 widths for 4 fields"):
        Layout(schema, (3,))
    with pytest.raises(DataError, match="0 or more"):
        Layout(schema, (3, -1, 2, 2))


def test_the_tiers_of_a_column_are_found_by_their_names() -> None:
    schema = Schema.of(
        **{"user:frequent": 2, "user:rare": 3, "a:rare": 4, "b": 5, "b:c:frequent": 2, "b:c:rare": 2, "b:c:middle": 2}
    )
    assert schema.tiers == {
        "user": ("user:frequent", "user:rare"),
        "a:rare": ("a:rare",),  # a field of the user's own: there is no other tier
        "b": ("b",),
        "b:c": ("b:c:frequent", "b:c:middle", "b:c:rare"),
    }


def test_fields_of_other_meanings_are_no_tiers() -> None:
    own = Schema.of(**{"u": 3, "u:frequent": 2, "u:rare": 3})
    assert own.tiers == {name: (name,) for name in own.names}, "the column itself is a field"
    several = Schema((Field("u:frequent", 2, 3), Field("u:rare", 3)))
    assert several.tiers == {name: (name,) for name in several.names}
    assert own.layout(2).shared is None


TIERED = Schema.of(**{"a": 3, "u:frequent": 9, "u:middle": 2, "u:rare": 20, "b": 4})


def test_tiers_share_the_vector_of_their_column() -> None:
    layout = TIERED.layout(3)
    assert layout.widths == (3, 3, 3, 3, 3), "as wide as the vector, even with fewer ids"
    assert layout.shared == ((0, 1, 2),) * 5
    assert layout.vectors == Layout(Schema.of(a=3, u=29, b=4), (3, 3, 3)), "one `unknown` for all tiers"
    assert layout.targets.tolist() == [0, 1, 2, 3, 4, 5, 3, 4, 5, 3, 4, 5, 6, 7, 8]
    assert TIERED.joined == layout.vectors.schema
    narrow = layout.narrowed(((1,), (0, 2), (), (2,), ()))
    assert narrow.widths == (1, 2, 0, 1, 0)
    assert narrow.shared == ((0,), (0, 1), (), (1,), ()), "position 1 is gone, 2 is the second now"
    assert narrow.vectors.widths == (1, 2, 0)
    assert narrow.targets.tolist() == [0, 1, 2, 2]
    assert narrow.narrowed(((), (1,), (), (0,), ())).shared == ((), (0,), (), (0,), ())
    plain = Schema.of(a=3, b=4).layout(2)
    assert plain.shared is None
    assert plain.vectors is plain
    assert plain.schema.joined is plain.schema
    assert plain.targets.tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize(
    ("shared", "says"),
    [
        (((0,), (0, 1), (), (1,)), "Give one for each column"),
        (
            ((0,), (0, 2), (), (2,), ()),
            r"\[\[0, 2\], \[\], \[2\]\] in the vector of 'u'. Allowed: ascending, from 0 on",
        ),
        (((0,), (1, 0), (), (1,), ()), "in the vector of 'u'"),
        (((1,), (0, 1), (), (1,), ()), "in the vector of 'a'"),
        (((0,), (0, 0), (), (1,), ()), "in the vector of 'u'"),
    ],
)
def test_positions_that_no_vector_has_are_refused(shared: tuple[tuple[int, ...], ...], says: str) -> None:
    with pytest.raises(DataError, match=says):
        Layout(TIERED, (1, 2, 0, 1, 0), shared)
