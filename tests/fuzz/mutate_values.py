"""Mutations of JSON and TOML that keep it valid: other types, sizes, keys, and hostile text."""

import json
import re
from collections.abc import Callable
from random import Random
from typing import Any, Final

import tomli_w

from tests.fuzz.mutate_bytes import BYTES, Bytes

Values = Callable[[Any, Random], Any]
NUMBERS: Final = (
    0, -1, 1, 2, 3, 255, 65_536, 2**31, 2**32, 10**9, 2**53, 2**63 - 1, 2**63, 2**64, 10**30, -(2**63), -(10**30), 0.5,
    -0.0, 1e-320, 1e308, float("inf"), float("-inf"), float("nan"),
)  # fmt: skip
TEXTS: Final = (
    "", " ", "\x00", "\x1b[31mred", "a\nb", "[/b]", "[red]x", "{}", "%s%n", "../../outside/x", "/etc/hostname", "..",
    ".", "con/../x", "a" * 5_000, "é\u202e\ud7ff", "<script>alert(1)</script>", "evil:Mine", "installed_evil:Mine",
    "os:system", ":", "a:", ":b", "..:x", "nan", "-Infinity", "1e999", "'; drop table t; --", "|", "null",
)  # fmt: skip
"""Text with a meaning in a path, a terminal, a page, an import or a number."""
DEEP: Final = 200_000
_SIZES: Final = re.compile("width|hidden|layers|cardinality|length|heads|size|bins|longest|count|rows")


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Returns the path of every nested value, including the root."""
    inner: list[tuple[Any, Any]] = []
    if isinstance(value, dict):
        inner = list(value.items())
    elif isinstance(value, list):
        inner = list(enumerate(value))
    return [path, *(found for key, one in inner for found in places(one, (*path, key)))]


def put(value: Any, path: tuple[Any, ...], new: Callable[[Any], Any]) -> Any:
    """Returns a copy with the value at a path replaced."""
    if not path:
        return new(value)
    copy = dict(value) if isinstance(value, dict) else list(value)
    copy[path[0]] = put(value[path[0]], path[1:], new)
    return copy


def at(value: Any, path: tuple[Any, ...]) -> Any:
    """Returns the value at a path."""
    for key in path:
        value = value[key]
    return value


def number(value: Any, draw: Random) -> Any:
    """Replaces a number by an extreme one."""
    found = [p for p in places(value) if isinstance(at(value, p), int | float)] or places(value)
    return put(value, draw.choice(found), lambda _: draw.choice(NUMBERS))


def text(value: Any, draw: Random) -> Any:
    """Replaces text by hostile text."""
    found = [p for p in places(value) if isinstance(at(value, p), str)] or places(value)
    return put(value, draw.choice(found), lambda _: draw.choice(TEXTS))


def kind(value: Any, draw: Random) -> Any:
    """Replaces a value by one of another type."""
    new: Any = draw.choice((None, True, False, [], {}, [[]], {"": None}, "x", 0, [None], [1, 2, 3], {"a": {"b": 1}}))
    return put(value, draw.choice(places(value)), lambda _: new)


def lose(value: Any, draw: Random) -> Any:
    """Removes a key or an entry."""
    found = [p for p in places(value) if p]
    if not found:
        return value
    path = draw.choice(found)

    def less(inner: Any) -> Any:
        if isinstance(inner, dict):
            return {key: one for key, one in inner.items() if key != path[-1]}
        return [one for place, one in enumerate(inner) if place != path[-1]]

    return put(value, path[:-1], less)


def double(value: Any, draw: Random) -> Any:
    """Adds an entry: a repeated one, or an unknown key."""
    found = [p for p in places(value) if isinstance(at(value, p), dict | list)]
    if not found:
        return [value, value]
    path = draw.choice(found)

    def more(inner: Any) -> Any:
        if isinstance(inner, dict):
            return {**inner, draw.choice(TEXTS): draw.choice([*inner.values(), None])}
        return inner * draw.choice((2, 2, 1000)) if inner else [None]

    return put(value, path, more)


def exchange_keys(value: Any, draw: Random) -> Any:
    """Swaps two values."""
    one, two = draw.choice(places(value)), draw.choice(places(value))
    if one[: len(two)] == two or two[: len(one)] == one:
        return value
    left, right = at(value, one), at(value, two)
    return put(put(value, one, lambda _: right), two, lambda _: left)


def size(value: Any, draw: Random) -> Any:
    """Replaces a size by one that does not match the stored data."""
    found = [p for p in places(value) if any(_SIZES.search(str(part)) for part in p)] or places(value)
    new: Any = draw.choice((65_536, [65_536, 65_536], 10**9, 2**40, [1] * 2_000, [2**50]))
    return put(value, draw.choice(found), lambda old: new[0] if isinstance(old, int) and isinstance(new, list) else new)


def infinite(value: Any, draw: Random) -> Any:
    """Replaces a number by NaN or infinity."""
    found = [p for p in places(value) if type(at(value, p)) in (int, float)] or places(value)
    new = draw.choice((float("inf"), float("-inf"), float("nan")))
    return put(value, draw.choice(found), lambda _: new)


VALUES: Final[dict[str, Values]] = {
    "number": number, "text": text, "kind": kind, "lose": lose, "double": double, "swap": exchange_keys, "size": size,
    "infinite": infinite,
}  # fmt: skip


def deep(data: bytes, draw: Random) -> bytes:
    """JSON nested deeper than any stack, as the root or as a value."""
    inner = b"[" * DEEP + b"]" * DEEP
    if draw.random() < 0.5:
        return inner
    return re.sub(rb"(: *)(\"[^\"]*\"|\d+)", lambda m: m[1] + inner, data, count=1)


def deep_toml(data: bytes, draw: Random) -> bytes:
    """An array or keys nested deeper than any stack."""
    depth = draw.choice((3_000, 20_000))
    array = b"x = " + b"[" * depth + b"]" * depth + b"\n"
    return draw.choice((array, b"[model]\n" + array, b".".join([b"a"] * depth) + b" = 1\n")) + data


def date_toml(data: bytes, draw: Random) -> bytes:
    """A date instead of a number or text."""
    date = draw.choice((b"1979-05-27T07:32:00Z", b"1979-05-27", b"07:32:00"))
    lines = data.split(b"\n")
    place = draw.choice([i for i, line in enumerate(lines) if b" = " in line] or [0])
    lines[place] = lines[place].split(b" = ")[0] + b" = " + date
    return b"\n".join(lines)


def in_json(change: Values) -> Bytes:
    """Applies a change of values to a JSON file; NaN and Infinity are written as Python does."""
    return lambda data, draw: json.dumps(change(json.loads(data), draw)).encode("utf-8", "surrogatepass")


def in_toml(change: Values) -> Bytes:
    """Applies a change of values to a TOML file; null values are dropped, because TOML has none."""

    def changed(data: bytes, draw: Random) -> bytes:
        import tomllib

        values = change(tomllib.loads(data.decode()), draw)
        return tomli_w.dumps(_sayable(values) if isinstance(values, dict) else {"x": _sayable(values)}).encode()

    return changed


def _sayable(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _sayable(one) for key, one in value.items() if one is not None}
    return [_sayable(one) for one in value if one is not None] if isinstance(value, list) else value


JSON: Final[dict[str, Bytes]] = {**BYTES, **{n: in_json(c) for n, c in VALUES.items()}, "deep": deep}
TOML: Final[dict[str, Bytes]] = {
    **BYTES, **{n: in_toml(c) for n, c in VALUES.items()}, "deep": deep_toml, "date": date_toml,
}  # fmt: skip
