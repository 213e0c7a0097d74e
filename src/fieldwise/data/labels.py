"""Which labels are clicks."""

from typing import Final

import pyarrow as pa

from fieldwise.core.errors import DataError
from fieldwise.core.hints import setting
from fieldwise.data.engines.engine import StagedFields

_CLICKS: Final = {"0": 0, "1": 1, "0.0": 0, "1.0": 1, "false": 0, "true": 1}
"""Labels that need no mapping."""


def clicks_of(staged: StagedFields, name: str, positive: tuple[str, ...]) -> pa.Array:
    """Returns the labels that count as a click; refuses empty and unmapped labels."""
    if staged.labels.get(None):  # an unknown label is neither a click nor its absence
        raise DataError(
            f"Label '{name}' is empty in {staged.labels[None]:,} rows. Allowed: a value in every row. "
            "Remove these rows, or fill in the label."
        )
    found = sorted(value for value in staged.labels if value is not None)
    if positive:
        absent = [value for value in positive if value not in staged.labels]
        if absent:
            raise DataError(f"Label '{name}' has no value {absent}. Allowed: {found[:10]}. Fix data.positive.")
        return pa.array(positive, pa.string())
    wrong = [value for value in found if value.lower() not in _CLICKS]
    if wrong:
        if wrong == [name]:
            raise DataError(
                f"The header is repeated in {staged.labels[name]:,} rows, as in files that were joined into one. "
                "Allowed: one header per file. Remove these rows."
            )
        shown = [int(value) if value.lstrip("-").isdigit() else value for value in wrong[:5]]
        raise DataError(
            f"Label '{name}' holds {shown}. Allowed: 0 and 1. List the values that are clicks, for example "
            f"{setting('data.positive', [wrong[-1]])}, or choose another label."
        )
    clicks = [value for value in found if _CLICKS[value.lower()]]
    if len(clicks) in (0, len(found)):
        raise DataError(
            f"Label '{name}' is {', '.join(found)} in all {sum(staged.rows):,} rows. Allowed: rows with and without a "
            "click. Give more rows, or choose another label."
        )
    return pa.array(clicks, pa.string())
