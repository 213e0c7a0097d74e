"""The files of each split, and splits that need no column of the rows."""

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from fieldwise.core.errors import DataError
from fieldwise.data.engines.engine import Preparation
from fieldwise.data.files import Format, find, format_of
from fieldwise.data.source import Files, SourceRows
from fieldwise.data.split import SPLITS, ColumnSplit, FileSplit, RandomSplit, SplitRule
from fieldwise.data.text_layout import check_same_layout

_WORDS: Final[dict[Format, str]] = {"text": "text", "json": "JSON Lines", "parquet": "Parquet"}


def files_of_splits(files: Files, split: SplitRule) -> list[Files]:
    """Returns the files of train, valid and test, or of train and test, for a split by files; else all files."""
    if not isinstance(split, FileSplit):
        return [files]
    others = [split.test] if split.valid is None else [split.valid, split.test]
    parts = [files, *(files.with_paths(find(raw)) for raw in others)]
    _check_disjoint(dict(zip(_of_parts(split), parts, strict=True)))
    formats = [format_of(part.paths[0]) for part in parts]
    for part, found in zip(parts[1:], formats[1:], strict=True):
        if found != formats[0]:
            raise DataError(
                f"Split by files: '{part.paths[0]}' is {_WORDS[found]}, the training rows are {_WORDS[formats[0]]}. "
                "Allowed: the same format in all splits. Convert one of them."
            )
        if files.is_text:
            check_same_layout(files.paths[0], part.paths, files.layout)
    return parts


def _of_parts(split: FileSplit) -> list[str]:
    return [name for name in SPLITS if name != "valid" or split.valid is not None]


@dataclass(frozen=True, slots=True)
class NumberSplit:
    """A split that depends only on the number of a row."""

    drawn: RandomSplit
    """Assigns a number to one of three."""
    indices: tuple[int, int, int]
    """The index in SPLITS of each of the three."""

    def sql(self, number: str) -> str:
        """Returns the index of the split in DuckDB's SQL; the same md5 as `RandomSplit.assign`."""
        prefix, (second, third) = f"substr(md5('{self.drawn.seed}|' || {number}), 1, 8)", self.drawn.edges()
        first, other, last = self.indices
        if len({*self.indices}) == 1:
            return str(first)
        return f"CASE WHEN {prefix} < '{second}' THEN {first} WHEN {prefix} < '{third}' THEN {other} ELSE {last} END"


def split_by_number(part: int, plan: Preparation) -> NumberSplit | None:
    """Returns a split that depends on no column; None for other splits."""
    split = plan.split
    if isinstance(split, FileSplit):
        index = SPLITS.index(_of_parts(split)[part])
        if index == 0 and split.valid is None:
            return train_or_valid(split)
        return NumberSplit(RandomSplit(), (index, index, index))
    return NumberSplit(split, (0, 1, 2)) if isinstance(split, RandomSplit) and not key_of(split, plan) else None


def train_or_valid(split: FileSplit | ColumnSplit) -> NumberSplit:
    """Takes some of the rows for valid, at random."""
    share = split.valid_share or 0.0
    return NumberSplit(RandomSplit(seed=split.seed, shares=(1 - share, share / 2, share / 2)), (0, 1, 1))


def key_of(split: RandomSplit, plan: Preparation) -> tuple[str, ...]:
    """Returns the columns that a random split hashes; none: the row number."""
    return split.key or (plan.rows.key if isinstance(plan.rows, SourceRows) else ())


def check_assigned(unassigned: int, split: ColumnSplit) -> None:
    """Refuses rows whose column value belongs to no split."""
    if unassigned:
        raise DataError(
            f"Split by column '{split.column}': {unassigned:,} rows have another value. Allowed: '{split.train}', "
            f"'{split.valid}', '{split.test}'. Set the values with split.{', split.'.join(SPLITS)}."
        )


def _check_disjoint(parts: dict[str, Files]) -> None:
    """Refuses a file that is in two splits."""
    seen: dict[Path, str] = {}
    for name, part in parts.items():
        for path in part.paths:
            other = seen.setdefault(path.resolve(), name)
            if other != name:
                raise DataError(
                    f"Split by files: '{path}' is in {other} and in {name}. Allowed: each file in one of "
                    f"{', '.join(SPLITS)}. Select other files, such as a glob of only the training files in data.raw."
                )
