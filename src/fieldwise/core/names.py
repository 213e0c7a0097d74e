"""Names that users type: looked up in a literal table, with the nearest one suggested."""

from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from importlib import import_module

from fieldwise.core.errors import SettingsError


def unknown(where: str, got: str, choices: Iterable[str]) -> str:
    """One sentence about a name that is not among the choices."""
    known = sorted(choices)
    near = get_close_matches(got, known, n=1, cutoff=0.5)
    hint = f" Did you mean '{near[0]}'?" if near else ""
    return f"[{where}] unknown '{got}'.{hint} Choose from: {', '.join(known)}."


def resolve(where: str, table: Mapping[str, str], name: str) -> type:
    """The class behind a table's name, or behind `package.module:Class`; imported, never evaluated.

    Tables map a name to `module:Class`, so that listing names imports nothing.
    """
    path = table.get(name, name)
    module, colon, attribute = path.partition(":")
    if not colon:
        raise SettingsError(unknown(where, name, table))
    try:
        found = vars(import_module(module))[attribute]
    except (ImportError, KeyError, ValueError) as error:
        raise SettingsError(
            f"[{where}] cannot import '{path}' ({error!r}). Allowed: a name of `fieldwise list`, or "
            "package.module:Class that Python can import. Check the spelling and the installation."
        ) from error
    if not isinstance(found, type):
        raise SettingsError(f"[{where}] '{path}' is {found!r}, not a class. Name a settings class.")
    return found


def by_class(table: Mapping[str, str], module: str, attribute: str) -> type:
    """The class of a table's entry by its own name, for `fieldwise.models.DCNv2` and the like."""
    for path in table.values():
        if path.endswith(f":{attribute}"):
            return resolve(module, table, path)
    raise AttributeError(f"module {module!r} has no attribute {attribute!r}")


def name_of(value: object, table: Mapping[str, str]) -> str:
    """The name that an object's class has in a table, or its `package.module:Class`."""
    path = f"{type(value).__module__}:{type(value).__name__}"
    return next((name for name, known in table.items() if known == path), path)
