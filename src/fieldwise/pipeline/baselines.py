"""The stage that measures what a run is judged by, once per run folder."""

from pathlib import Path

from fieldwise.core.baselines import BaselineRecord
from fieldwise.core.settings import Values
from fieldwise.core.watcher import Watcher
from fieldwise.data.store import Dataset
from fieldwise.pipeline.folder import agree, begin, end, read_record
from fieldwise.train.baselines import measure_baselines
from fieldwise.train.logistic import STRENGTHS
from fieldwise.train.task import Device, choose_device

FOLDER = "baselines"


def baselines(data: Dataset, out: Path, device: Device, watcher: Watcher) -> BaselineRecord:
    """Measures a constant, a logistic regression and single fields in a run folder, unless that is complete."""
    folder = out / FOLDER
    values: Values = {"dataset": data.fingerprint, "l2": list(STRENGTHS)}
    if (folder / "stage.json").exists():
        agree(folder, values)
    if begin(watcher, folder, values, "baselines: a constant, and a logistic regression"):
        end(folder, measure_baselines(data, choose_device(device)))
    return read_record(BaselineRecord, folder / "record.json")
