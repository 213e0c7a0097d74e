"""Looks up names that users type in literal tables, and suggests the nearest one."""

import os
import sys
from collections.abc import Collection, Iterable, Mapping
from difflib import get_close_matches
from importlib import import_module
from importlib.util import find_spec
from types import ModuleType
from typing import Any, Final

from fieldwise.core.errors import SettingsError

Trusted = Collection[str] | None
"""The only `package.module:Class` names that may be imported; None: any."""
_OWN: Final = __name__.partition(".")[0]


def unknown(where: str, got: str, choices: Iterable[str]) -> str:
    """The error message for a name that is not among the choices."""
    known = sorted(choices)
    near = get_close_matches(got, known, n=1, cutoff=0.5)
    hint = f" Did you mean '{near[0]}'?" if near else ""
    return f"[{where}] unknown '{got}'.{hint} Choose from: {', '.join(known)}."


def resolve(where: str, table: Mapping[str, str], name: str, trusted: Trusted = None) -> type:
    """The class of a table's name or of `package.module:Class`; see `find`."""
    found = find(where, table, name, trusted)
    if not isinstance(found, type):
        raise SettingsError(f"[{where}] '{name}' is {found!r:.80}, not a class. Name a settings class.")
    return found


def find(where: str, table: Mapping[str, str], name: str, trusted: Trusted = None) -> Any:
    """The object of a table's name or of `package.module:name`; it is imported, never evaluated.

    Tables map a name to `module:Class`, so that listing names imports nothing. A class in no table is imported only
    if it is trusted: a file may name a class, but the user must name it too.
    """
    path = table.get(name, name)
    module, colon, attribute = path.partition(":")
    if not colon:
        raise SettingsError(unknown(where, name, table))
    own = path not in table.values()
    if own and module.partition(".")[0] == _OWN:
        raise SettingsError(unknown(where, name, table))
    if own and trusted is not None and path not in trusted:
        flag = "" if "." in where else f"Add --set {where}.name={path}, or give"
        raise SettingsError(
            f"[{where}] '{path}' is named by a file in the folder, and no file may run code. "
            f"{flag or 'Give'} the settings file as an argument, if you trust it."
        )
    try:
        members = vars(_module(module, attribute) if own else import_module(module))
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # a user's module may raise anything, even SystemExit
        why = " ".join(f"{type(error).__name__}: {error}".split())[:300]
        raise SettingsError(_not_imported(where, path, why)) from error
    found = members.get(attribute)
    if attribute not in members:
        raise SettingsError(_not_imported(where, path, f"the module has no '{attribute}'"))
    return found


def _module(module: str, attribute: str) -> ModuleType:
    """A user's module; appends the working directory to `sys.path` if the module is found nowhere else."""
    if not all(part.isidentifier() for part in (*module.split("."), attribute)):
        raise ImportError("it does not have the form package.module:Class")
    top = module.partition(".")[0]
    if top not in sys.modules and find_spec(top) is None:
        sys.path.append(os.getcwd())  # noqa: PTH109, sys.path holds strings
    return import_module(module)


def _not_imported(where: str, path: str, why: str) -> str:
    return (
        f"[{where}] cannot import '{path}' ({why}). Allowed: a name of `fieldwise list`, or package.module:Class that "
        "Python can import. Check the spelling, the module and the installation."
    )


def by_class(table: Mapping[str, str], module: str, attribute: str) -> type:
    """The class of a table by its class name, for lookups such as `fieldwise.models.DCNv2`."""
    for path in table.values():
        if path.endswith(f":{attribute}"):
            return resolve(module, table, path)
    raise AttributeError(f"module {module!r} has no attribute {attribute!r}")


def class_names(table: Mapping[str, str]) -> list[str]:
    """The class names of a table, for `dir` and completion."""
    return sorted(path.partition(":")[2] for path in table.values())


def name_of(value: object, table: Mapping[str, str]) -> str:
    """The name of an object's class in a table, or its `package.module:Class`."""
    return name_of_class(type(value), table)


def name_of_class(cls: type, table: Mapping[str, str]) -> str:
    """The name of a class in a table, or its `package.module:Class`."""
    path = f"{cls.__module__}:{cls.__name__}"
    return next((name for name, known in table.items() if known == path), path)
