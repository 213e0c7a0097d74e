"""Finds how wide each field's embedding should be in a CTR model, and returns the smaller model.

`import fieldwise as fw` imports no torch: each public name is imported when it is first used.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from fieldwise.core.version import __version__ as __version__

if TYPE_CHECKING:
    from fieldwise import data as data
    from fieldwise import gates as gates
    from fieldwise import models as models
    from fieldwise import searches as searches
    from fieldwise.comparison.results import compare as compare
    from fieldwise.comparison.settings import CompareSettings as CompareSettings
    from fieldwise.core.budget import Budget as Budget
    from fieldwise.core.errors import FieldwiseError as FieldwiseError
    from fieldwise.core.mask import Mask as Mask
    from fieldwise.core.schema import Field as Field
    from fieldwise.core.schema import Layout as Layout
    from fieldwise.core.schema import Schema as Schema
    from fieldwise.core.select import select as select
    from fieldwise.core.watcher import Watcher as Watcher
    from fieldwise.data.check import check as check
    from fieldwise.data.engines.arrow import Arrow as Arrow
    from fieldwise.data.engines.duckdb import DuckDB as DuckDB
    from fieldwise.data.engines.engine import Auto as Auto
    from fieldwise.data.engines.spark import Spark as Spark
    from fieldwise.data.kinds.check import Check as Check
    from fieldwise.data.prepare import prepare as prepare
    from fieldwise.data.rules import Rule as Rule
    from fieldwise.data.split import ColumnSplit as ColumnSplit
    from fieldwise.data.split import FileSplit as FileSplit
    from fieldwise.data.split import RandomSplit as RandomSplit
    from fieldwise.data.split import TimeSplit as TimeSplit
    from fieldwise.data.store import Dataset as Dataset
    from fieldwise.exports.folder import export as export
    from fieldwise.exports.folder import load as load
    from fieldwise.exports.onnx import to_onnx as to_onnx
    from fieldwise.exports.predict import predict_file as predict_file
    from fieldwise.exports.predictor import Predictor as Predictor
    from fieldwise.models.compact import compact as compact
    from fieldwise.pipeline.estimator import FieldwiseClassifier as FieldwiseClassifier
    from fieldwise.pipeline.report import report as report
    from fieldwise.pipeline.settings import Run as Run
    from fieldwise.pipeline.settings import RunSettings as RunSettings
    from fieldwise.pipeline.stages import run as run
    from fieldwise.reports.progress import Progress as Progress
    from fieldwise.searches.pruner import Pruner as Pruner
    from fieldwise.searches.search import SearchResult as SearchResult
    from fieldwise.searches.search import search as search
    from fieldwise.train.evaluate import evaluate as evaluate
    from fieldwise.train.plan import Training as Training
    from fieldwise.train.pretraining import Pretrain as Pretrain
    from fieldwise.train.pretraining import pretrain as pretrain
    from fieldwise.train.regularity import SoftOrthogonality as SoftOrthogonality
    from fieldwise.train.retraining import Retrain as Retrain
    from fieldwise.train.retraining import retrain as retrain
    from fieldwise.train.task import Task as Task
    from fieldwise.train.trained import Trained as Trained

__all__ = [
    "Arrow",
    "Auto",
    "Budget",
    "Check",
    "ColumnSplit",
    "CompareSettings",
    "Dataset",
    "DuckDB",
    "Field",
    "FieldwiseClassifier",
    "FieldwiseError",
    "FileSplit",
    "Layout",
    "Mask",
    "Predictor",
    "Pretrain",
    "Progress",
    "Pruner",
    "RandomSplit",
    "Retrain",
    "Rule",
    "Run",
    "RunSettings",
    "Schema",
    "SearchResult",
    "SoftOrthogonality",
    "Spark",
    "Task",
    "TimeSplit",
    "Trained",
    "Training",
    "Watcher",
    "check",
    "compact",
    "compare",
    "data",
    "evaluate",
    "export",
    "gates",
    "load",
    "models",
    "predict_file",
    "prepare",
    "pretrain",
    "report",
    "retrain",
    "run",
    "search",
    "searches",
    "select",
    "to_onnx",
]

_HOMES = {
    "Arrow": "fieldwise.data.engines.arrow",
    "Auto": "fieldwise.data.engines.engine",
    "Budget": "fieldwise.core.budget",
    "Check": "fieldwise.data.kinds.check",
    "ColumnSplit": "fieldwise.data.split",
    "CompareSettings": "fieldwise.comparison.settings",
    "Dataset": "fieldwise.data.store",
    "DuckDB": "fieldwise.data.engines.duckdb",
    "Field": "fieldwise.core.schema",
    "FieldwiseClassifier": "fieldwise.pipeline.estimator",
    "FieldwiseError": "fieldwise.core.errors",
    "FileSplit": "fieldwise.data.split",
    "Layout": "fieldwise.core.schema",
    "Mask": "fieldwise.core.mask",
    "Predictor": "fieldwise.exports.predictor",
    "Pretrain": "fieldwise.train.pretraining",
    "RandomSplit": "fieldwise.data.split",
    "Retrain": "fieldwise.train.retraining",
    "Rule": "fieldwise.data.rules",
    "Run": "fieldwise.pipeline.settings",
    "RunSettings": "fieldwise.pipeline.settings",
    "Progress": "fieldwise.reports.progress",
    "Pruner": "fieldwise.searches.pruner",
    "Schema": "fieldwise.core.schema",
    "SearchResult": "fieldwise.searches.search",
    "SoftOrthogonality": "fieldwise.train.regularity",
    "Spark": "fieldwise.data.engines.spark",
    "Task": "fieldwise.train.task",
    "TimeSplit": "fieldwise.data.split",
    "Trained": "fieldwise.train.trained",
    "Training": "fieldwise.train.plan",
    "Watcher": "fieldwise.core.watcher",
    "check": "fieldwise.data.check",
    "compact": "fieldwise.models.compact",
    "compare": "fieldwise.comparison.results",
    "evaluate": "fieldwise.train.evaluate",
    "export": "fieldwise.exports.folder",
    "load": "fieldwise.exports.folder",
    "predict_file": "fieldwise.exports.predict",
    "prepare": "fieldwise.data.prepare",
    "pretrain": "fieldwise.train.pretraining",
    "report": "fieldwise.pipeline.report",
    "retrain": "fieldwise.train.retraining",
    "run": "fieldwise.pipeline.stages",
    "search": "fieldwise.searches.search",
    "select": "fieldwise.core.select",
    "to_onnx": "fieldwise.exports.onnx",
}
_PACKAGES = ("data", "gates", "models", "searches")


def __getattr__(name: str) -> Any:
    """Imports a public name when it is first used."""
    if name in _PACKAGES:
        return import_module(f"fieldwise.{name}")
    if name in _HOMES:
        return vars(import_module(_HOMES[name]))[name]
    raise AttributeError(f"module 'fieldwise' has no attribute {name!r}")


def __dir__() -> list[str]:
    """The public names, whether imported yet or not, and the module's attributes such as `__version__`."""
    return sorted({*__all__, *(name for name in globals() if name.startswith("__"))})
