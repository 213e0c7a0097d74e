"""Base models: an embedding, a head, and their slicing."""

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from fieldwise.core.registry import by_class, class_names

if TYPE_CHECKING:
    from fieldwise.models.autoint import AutoInt as AutoInt
    from fieldwise.models.check import check_model as check_model
    from fieldwise.models.dcnv2 import DCNv2 as DCNv2
    from fieldwise.models.deepfm import DeepFM as DeepFM
    from fieldwise.models.fm import FM as FM
    from fieldwise.models.layers import Lift as Lift
    from fieldwise.models.model import Head as Head
    from fieldwise.models.model import Model as Model
    from fieldwise.models.model import Slices as Slices

MODELS: Final = {
    "autoint": "fieldwise.models.autoint:AutoInt",
    "dcnv2": "fieldwise.models.dcnv2:DCNv2",
    "deepfm": "fieldwise.models.deepfm:DeepFM",
    "fm": "fieldwise.models.fm:FM",
}

_OWN: Final = {
    "Head": "fieldwise.models.model",
    "Lift": "fieldwise.models.layers",
    "Model": "fieldwise.models.model",
    "Slices": "fieldwise.models.model",
    "check_model": "fieldwise.models.check",
}
"""Building blocks of a user's own model."""


def __getattr__(name: str) -> Any:
    """Models by class name, and building blocks of a user's own model."""
    if name in _OWN:
        return vars(import_module(_OWN[name]))[name]
    return by_class(MODELS, __name__, name)


def __dir__() -> list[str]:
    """The classes, whether imported yet or not, and their table."""
    return sorted([*class_names(MODELS), *_OWN, "MODELS"])
