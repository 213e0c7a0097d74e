"""Names of raw columns: unique, and never empty."""

from collections.abc import Sequence


def column_names(names: Sequence[str]) -> tuple[str, ...]:
    """Returns unique names: an empty one gets its position, a repeated one a number.

    ("", "price", "price") becomes ("column_1", "price", "price_2").
    """
    found: dict[str, None] = {}
    for position, given in enumerate(names, 1):
        name = base = given if given.strip() else f"column_{position}"
        number = 1
        while name in found or (number > 1 and name in names):
            number += 1
            name = f"{base}_{number}"
        found[name] = None
    return tuple(found)


def collide(names: Sequence[str]) -> bool:
    """Returns whether names differ only by case, are repeated, or are empty."""
    return len({name.lower() for name in names}) < len(names) or not all(name.strip() for name in names)
