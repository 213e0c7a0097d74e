"""What may be wrong with a column, in plain words."""

from dataclasses import replace
from typing import Final

import numpy as np

from fieldwise.data.kinds import names
from fieldwise.data.kinds.choose import MOSTLY
from fieldwise.data.kinds.column import Column
from fieldwise.data.kinds.evidence import Predicted, auc
from fieldwise.data.kinds.infer import Found
from fieldwise.data.kinds.numbers import best_bins
from fieldwise.data.kinds.texts import has_spaced_numbers, numbers_in, without_text
from fieldwise.data.kinds.times import times_in

LEAK: Final = 0.95
"""From this AUC on, a column alone may contain the label."""
_LEFT_OUT: Final = {
    "unique": "nearly unique, which says nothing about new rows",
    "constant": "constant",
    "weight": "looks like a weight of rows, which is no property of them",
}


def suspects_of(column: Column, found: Found, unknown: float | None) -> tuple[str, ...]:
    """Returns one sentence per suspicion; `unknown` is the fraction of unknown values in validation rows."""
    texts: list[str] = []
    if found.kind in _LEFT_OUT:
        state = "left out" if not found.rules or found.kind == "constant" else "kept, since the settings name it"
        texts.append(f"{_LEFT_OUT[found.kind]}: {state}")
    alone = auc(_prediction(column).rates, column.clicks) if len(column.clicks) else 0.5
    if alone >= LEAK:
        texts.append(f"alone, it predicts the label with AUC {alone:.4f}: does it contain the label?")
    if unknown is not None and unknown >= MOSTLY and found.rules:
        texts.append(f"{unknown:.0%} of the validation rows have values that training rows do not have")
    if has_spaced_numbers(column):
        texts.append("text that is numbers with spaces")
    if found.kind in ("category", "unique") and column.distinct > 1 and _looks_like_times(column):
        texts.append("looks like a time: for its hour and weekday, set kind and time_format")
    if found.kind == "number" and names.may_be_weight(column.name):
        texts.append("may be a weight of rows: if it is, leave it out")
    return tuple(texts)


def _looks_like_times(column: Column) -> bool:
    """Whether values are times in spite of their kind: set by the user, or digits that are stored as text."""
    return times_in(replace(column, is_text_file=True)) is not None


def _prediction(column: Column) -> Predicted:
    """Returns the better of the predictions as a category and, for numbers, in bins."""
    category = column.as_category
    only_numbers = without_text(column)
    numbers = numbers_in(only_numbers) if column.distinct > 2 else None
    if numbers is None or not np.isfinite(numbers).all():
        return category
    return min(category, best_bins(only_numbers, numbers), key=lambda one: one.loss)
