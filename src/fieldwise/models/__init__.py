"""Base models: an embedding, a head, and their slicing; and modules of a user's factory."""

from typing import TYPE_CHECKING, Any, Final

from fieldwise.core.registry import by_class, class_names

if TYPE_CHECKING:
    from fieldwise.models.autoint import AutoInt as AutoInt
    from fieldwise.models.dcnv2 import DCNv2 as DCNv2
    from fieldwise.models.deepfm import DeepFM as DeepFM
    from fieldwise.models.fm import FM as FM

MODELS: Final = {
    "autoint": "fieldwise.models.autoint:AutoInt",
    "dcnv2": "fieldwise.models.dcnv2:DCNv2",
    "deepfm": "fieldwise.models.deepfm:DeepFM",
    "fm": "fieldwise.models.fm:FM",
}


def __getattr__(name: str) -> Any:
    """Models by class name."""
    return by_class(MODELS, __name__, name)


def __dir__() -> list[str]:
    """The classes, whether imported yet or not, and their table."""
    return sorted([*class_names(MODELS), "MODELS"])
