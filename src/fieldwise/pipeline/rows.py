"""Prepares a dataset from the settings tables about rows, without importing anything of the models."""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, cast

from fieldwise.core.errors import SettingsError
from fieldwise.core.registry import Trusted, name_of
from fieldwise.core.watcher import Watcher
from fieldwise.data import SOURCES
from fieldwise.data.engines.engine import Engine
from fieldwise.data.prepare import is_used, prepare
from fieldwise.data.rules import Tiers
from fieldwise.data.source import TIERS, Source
from fieldwise.data.split import SplitRule
from fieldwise.data.store import Dataset
from fieldwise.pipeline.reader import Reader, engine_of, source_of, split_of


@dataclass(frozen=True, slots=True)
class RowSettings:
    """The settings of a dataset."""

    data: Source
    split: SplitRule
    engine: Engine
    tiers: Tiers = TIERS
    """What `auto` is in `data.tiers`."""

    @classmethod
    def parse(cls, values: Mapping[str, Any], trusted: Trusted = None) -> "RowSettings":
        """Settings from plain tables; all tables of a run are checked if some are not about rows."""
        if not {*values} <= {field.name for field in fields(cls)} - {"tiers"}:
            from fieldwise.pipeline.settings import RunSettings

            return RunSettings.parse(values, trusted).rows
        reader = Reader(values, trusted)
        source = source_of(values, reader, trusted, prepared=False)
        result = cls(cast(Source, source), split_of(reader), engine_of(reader))
        if reader.problems:
            raise SettingsError("\n".join(reader.problems))
        return result

    def prepare(self, out: Path, watcher: Watcher) -> Dataset:
        """Encodes the source into the dataset folder `out`."""
        watcher.begin(f"prepare {name_of(self.data, SOURCES)}", done=out.exists())
        source = self.data if is_used(out) else self.data.cut(self.tiers)
        return prepare(source, out, self.split, watcher.rows, self.engine)
