"""Finds how wide each field's embedding should be in a CTR model, and hands back the smaller model."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from fieldwise.core.version import __version__ as __version__

if TYPE_CHECKING:
    from fieldwise import data as data
    from fieldwise import gates as gates
    from fieldwise import models as models
    from fieldwise import searches as searches
    from fieldwise.core.budget import Budget as Budget
    from fieldwise.core.errors import FieldwiseError as FieldwiseError
    from fieldwise.core.mask import Mask as Mask
    from fieldwise.core.schema import Field as Field
    from fieldwise.core.schema import Layout as Layout
    from fieldwise.core.schema import Schema as Schema
    from fieldwise.core.select import select as select
    from fieldwise.data.prepare import prepare as prepare
    from fieldwise.data.store import Dataset as Dataset
    from fieldwise.exports.folder import export as export
    from fieldwise.exports.folder import load as load
    from fieldwise.exports.predict import predict as predict
    from fieldwise.exports.predictor import Predictor as Predictor
    from fieldwise.models.compact import compact as compact
    from fieldwise.searches.pruner import Pruner as Pruner
    from fieldwise.searches.search import SearchResult as SearchResult
    from fieldwise.searches.search import search as search
    from fieldwise.train.evaluate import evaluate as evaluate
    from fieldwise.train.stages import pretrain as pretrain
    from fieldwise.train.stages import retrain as retrain
    from fieldwise.train.task import Task as Task


_HOMES = {
    "Budget": "fieldwise.core.budget",
    "Dataset": "fieldwise.data.store",
    "Field": "fieldwise.core.schema",
    "FieldwiseError": "fieldwise.core.errors",
    "Layout": "fieldwise.core.schema",
    "Mask": "fieldwise.core.mask",
    "Predictor": "fieldwise.exports.predictor",
    "Pruner": "fieldwise.searches.pruner",
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
