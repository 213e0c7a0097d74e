"""Models of a user's factory, a function `build(schema) -> nn.Module`: any PyTorch module runs through all stages.

The keywords of the factory are its settings. A module takes ids (B, places), or a mapping from field names to ids, and
returns logits or probabilities.
"""

import inspect
import json
from collections.abc import Callable
from functools import cache
from typing import Any, ClassVar, Final, get_type_hints

import torch
from pydantic import ConfigDict, TypeAdapter, create_model
from torch import nn

from fieldwise.core.errors import FieldwiseError, MaskError, RunError, SettingsError
from fieldwise.core.mask import Mask
from fieldwise.core.registry import Trusted, find, name_of_class
from fieldwise.core.schema import Layout, Schema
from fieldwise.models import MODELS
from fieldwise.models.factory_model import FactoryModel
from fieldwise.models.model import Model
from fieldwise.pruning.inside import Inside, look_inside
from fieldwise.pruning.sites import Table

Build = Callable[..., nn.Module]
"""A factory: takes the schema, and keywords with defaults."""
IDS: Final = 2**22
"""Ids that a module may have beyond the numbers that its folder stores, if it cannot be built without memory."""
_seen: dict[tuple[Build, str, Schema], Inside] = {}


class Factory(Model):
    """Settings of a factory's models: the keywords of the function, with its defaults."""

    model_config = ConfigDict(protected_namespaces=())
    call: ClassVar[Build]
    """The user's function."""

    def module(self, schema: Schema) -> nn.Module:
        """A new module of the factory; whatever it raises becomes one line."""
        keywords = {name: getattr(self, name) for name in type(self).model_fields}
        try:
            found = type(self).call(schema, **keywords)
        except RunError:  # a limit of loading, which counts what the factory creates
            raise
        except (Exception, SystemExit) as error:
            line = (str(error).strip().splitlines() or [""])[0][:200].removesuffix(".")
            raise SettingsError(f"[model] {self._name}(schema) raised {type(error).__name__}: {line}.") from error
        if not isinstance(found, nn.Module) or isinstance(found, torch.jit.ScriptModule) or hasattr(found, "_orig_mod"):
            raise SettingsError(
                f"[model] {self._name}(schema) returned a {type(found).__name__}. Allowed: an nn.Module, neither "
                "TorchScript nor compiled. Return the module itself."
            )
        for module in found.modules():
            if isinstance(module, Table):
                module.sparse = False  # the library's optimizer has dense gradients
        return found

    def inside(self, schema: Schema) -> Inside:
        """What one call of a module shows; found once per schema."""
        key = (type(self).call, json.dumps(self.values(), sort_keys=True), schema)
        if key not in _seen:
            with torch.random.fork_rng(devices=[]):
                module = self.module(schema)
                try:
                    _seen[key] = look_inside(module, schema)
                except FieldwiseError as error:
                    raise type(error)(f"[model] {self._name}: {error}") from error
        return _seen[key]

    def layout(self, schema: Schema) -> Layout:
        """The columns of the full model: those of the module's tables."""
        return self.inside(schema).layout

    def new(self, schema: Schema) -> FactoryModel:
        """A full model, initialized as the factory does."""
        inside = self.inside(schema)  # before the module, so that it has the same random numbers at every call
        return FactoryModel(self, inside, self.module(schema))

    def fresh(self, schema: Schema, mask: Mask) -> FactoryModel:
        """A new full model, of which only the mask's columns are left."""
        return self.new(schema).narrowed(mask)

    def weights(self, schema: Schema) -> nn.Module:
        """A module with the full model's weights, whose number can be counted on the meta device."""
        return self.module(schema)

    def adopted(self, module: nn.Module, schema: Schema) -> FactoryModel:
        """A model from a module of the factory that was trained elsewhere, full or compacted by a pruner."""
        inside = self.inside(schema)
        try:
            return FactoryModel(self, inside, module)
        except AttributeError as error:
            raise MaskError(
                f"The module is no {self._name}: {error}. Pass what the factory returned, or its compact form."
            ) from error

    @property
    def _name(self) -> str:
        return name_of_class(type(self), MODELS)

    def __reduce__(self) -> Any:
        return _made, (type(self).call, self.model_dump())


def _made(build: Build, values: dict[str, Any]) -> Factory:
    return factory_of(build)(**values)


def model_class(given: Any) -> type[Model]:
    """The settings class of a model: a class of the library, or one made for a factory."""
    if isinstance(given, type) and issubclass(given, Model):
        return given
    return factory_of(given)


def model_named(name: str, trusted: Trusted = None, where: str = "model") -> type[Model]:
    """The settings class of a name: of the library's table, or `package.module:build`."""
    found = find(where, MODELS, name, trusted)
    if not callable(found):
        raise SettingsError(f"[{where}] '{name}' is {found!r:.80}. Allowed: a function build(schema). Name one.")
    return model_class(found)


@cache
def factory_of(build: Build) -> type[Factory]:
    """The settings class of a factory: one field per keyword."""
    name = getattr(build, "__name__", None)
    if not callable(build) or isinstance(build, nn.Module) or not isinstance(name, str):
        raise SettingsError(
            f"[model] got {build!r:.80}. Allowed: settings of a base model, such as fw.models.DCNv2(), or a function "
            "build(schema) that returns an nn.Module. Pass the function; for a module in your own loop, use fw.Pruner."
        )
    fields: dict[str, Any] = {own.name: (_type(build, own), own.default) for own in _keywords(build, name)}
    made: Any = create_model(
        name, __base__=Factory, __module__=getattr(build, "__module__", "__main__"), __doc__=build.__doc__, **fields
    )
    made.call = staticmethod(build)
    cls: type[Factory] = made
    return cls


_PLAIN: Final = (bool, int, float, str, list, tuple, dict, type(None))


def _keywords(build: Build, name: str) -> list[inspect.Parameter]:
    """The keywords of a factory with plain values, which are its settings; refuses other signatures."""
    try:
        signature = inspect.signature(build)
    except (TypeError, ValueError) as error:
        raise SettingsError(f"[model] '{name}' has no signature ({error}). Write a function build(schema).") from error
    kinds = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    first, others = (found := [p for p in signature.parameters.values() if p.kind not in kinds])[:1], found[1:]
    bad = [p.name for p in others if p.default is p.empty]
    if not first or first[0].kind is inspect.Parameter.KEYWORD_ONLY or bad:
        raise SettingsError(
            f"[model] '{name}' takes {signature}. Allowed: build(schema), and further keywords with defaults. "
            f"Give {', '.join(bad) or 'it the schema'}{' a default' if bad else ''}."
        )
    found = [p for p in others if isinstance(p.default, _PLAIN) and p.kind is not p.POSITIONAL_ONLY]
    taken = [p.name for p in found if hasattr(Factory, p.name) or p.name == "name"]
    if taken:
        raise SettingsError(f"[model] '{name}' has a keyword '{taken[0]}', which is a name of fieldwise. Rename it.")
    return found


def _type(build: Build, own: inspect.Parameter) -> Any:
    """The annotation of a keyword if its default has that type, else Any."""
    try:
        hints = get_type_hints(vars(build).get("__init__", build) if isinstance(build, type) else build)
        TypeAdapter(hints[own.name]).validate_python(own.default)
    except Exception:
        return Any
    return hints[own.name]
