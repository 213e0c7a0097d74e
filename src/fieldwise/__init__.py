"""Finds how wide each field's embedding should be in a CTR model, and hands back the smaller model."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from fieldwise.core.version import __version__ as __version__

if TYPE_CHECKING:
    from fieldwise import data, gates, models, searches
    from fieldwise.core.budget import Budget
    from fieldwise.core.errors import FieldwiseError
    from fieldwise.core.mask import Mask
    from fieldwise.core.schema import Field, Layout, Schema
    from fieldwise.core.select import select
    from fieldwise.data.prepare import prepare
    from fieldwise.data.store import Dataset
    from fieldwise.exports.folder import export, load
    from fieldwise.exports.predict import predict
    from fieldwise.exports.predictor import Predictor
    from fieldwise.models.compact import compact
    from fieldwise.searches.search import SearchResult, search
    from fieldwise.train.evaluate import evaluate
    from fieldwise.train.stages import pretrain, retrain
    from fieldwise.train.task import Task

_HOMES = {
    "Budget": "fieldwise.core.budget",
    "Dataset": "fieldwise.data.store",
    "Field": "fieldwise.core.schema",
    "FieldwiseError": "fieldwise.core.errors",
    "Layout": "fieldwise.core.schema",
    "Mask": "fieldwise.core.mask",
    "Predictor": "fieldwise.exports.predictor",
    "Schema": "fieldwise.core.schema",
    "SearchResult": "fieldwise.searches.search",
    "Task": "fieldwise.train.task",
    "compact": "fieldwise.models.compact",
    "evaluate": "fieldwise.train.evaluate",
    "export": "fieldwise.exports.folder",
    "load": "fieldwise.exports.folder",
    "predict": "fieldwise.exports.predict",
    "prepare": "fieldwise.data.prepare",
    "pretrain": "fieldwise.train.stages",
    "retrain": "fieldwise.train.stages",
    "search": "fieldwise.searches.search",
    "select": "fieldwise.core.select",
}
_FOLDERS = ("data", "gates", "models", "searches")

__all__ = sorted([*_HOMES, *_FOLDERS])  # noqa: PLE0605


def __getattr__(name: str) -> Any:
    """Names are imported when first used, so that `import fieldwise` does not import torch."""
    if name in _FOLDERS:
        return import_module(f"fieldwise.{name}")
    if name in _HOMES:
        return vars(import_module(_HOMES[name]))[name]
    raise AttributeError(f"module 'fieldwise' has no attribute {name!r}")
