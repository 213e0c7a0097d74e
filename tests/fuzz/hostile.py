"""Edits by an attacker: valid checksums, code to run, sizes that do not match the stored data."""

import hashlib
import json
import tomllib
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any, Final

import tomli_w

from tests.fuzz.mutate_bytes import flip

Edit = Callable[[Path, Random], str]
"""Edits a case's folder and returns the name of the changed file."""
EVIL: Final = """\
from pathlib import Path
Path(__file__).with_name("EVIL").write_text("a file from a stranger ran this")
class Mine: pass
"""
"""A module that fieldwise must not import because a file names it."""
MODULES: Final = ("evil:Mine", "installed_evil:Mine", "evil:Nothing", "installed_evil:Nothing")


def sign(model: Path) -> None:
    """Updates the digest and checksums, so that they do not reveal a change; does not touch invalid JSON."""
    path = model / "model.json"
    if path.is_symlink() or not path.is_file() or path.stat().st_size > 2**24:
        return
    try:
        values = json.loads(path.read_bytes())
    except (ValueError, RecursionError):
        return
    if not isinstance(values, dict):
        return
    listed = values.get("files")
    for name, entry in listed.items() if isinstance(listed, dict) else ():
        file = model / name[:100].replace("\0", "")
        if isinstance(entry, dict) and not file.is_symlink() and file.is_file() and file.stat().st_size < 2**28:
            data = file.read_bytes()
            entry |= {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}
    values.pop("digest", None)
    values["digest"] = hashlib.sha256(json.dumps(values, sort_keys=True).encode("utf-8", "surrogatepass")).hexdigest()
    path.write_text(json.dumps(values))


def _edit_model(folder: Path, change: Callable[[dict[str, Any]], None]) -> str:
    path = folder / "model" / "model.json"
    values = json.loads(path.read_bytes())
    change(values)
    path.write_text(json.dumps(values))
    return "model/model.json"


def own_module(folder: Path, draw: Random) -> str:
    """A base model from a module of the working directory or of the environment."""
    return _edit_model(folder, lambda values: values["model"].update(name=draw.choice(MODULES)))


def hidden(folder: Path, draw: Random) -> str:
    """Layers of gigabytes in a small file."""
    sizes = draw.choice(([65_536, 65_536], [60_000, 60_000, 60_000], [65_535] * 50))
    return _edit_model(folder, lambda values: values["model"].update(hidden=sizes))


def layers(folder: Path, draw: Random) -> str:
    """More layers than the file stores numbers."""
    return _edit_model(folder, lambda values: values["model"].update(cross_layers=draw.choice((65_536, 60_000))))


def unlisted(folder: Path, draw: Random) -> str:
    """Changed weights that model.json does not list."""
    path = folder / "model" / "model.safetensors"
    data = path.read_bytes()
    start = 8 + int.from_bytes(data[:8], "little")
    path.write_bytes(data[:start] + flip(data[start:], draw))
    _edit_model(folder, lambda values: values["files"].pop("model.safetensors"))
    return "model/model.safetensors"


def named_in_settings(folder: Path, draw: Random) -> str:
    """A run folder whose settings name a module."""
    path = folder / "run" / "settings.toml"
    values = tomllib.loads(path.read_text())
    values[draw.choice(("model", "search", "data", "engine"))] = {"name": draw.choice(MODULES)}
    path.write_text(tomli_w.dumps(values))
    return "run/settings.toml"


def wide(folder: Path, draw: Random) -> str:
    """A factory's tables or layers of gigabytes, of which a small file stores a few columns."""
    key, size = draw.choice(("width", "hidden")), draw.choice((2**20, 2**26, 2**30, 2**40))
    return _edit_model(folder, lambda values: values["model"].update({key: size}))


def many_ids(folder: Path, draw: Random) -> str:
    """More ids than a factory's tables have rows."""
    rows = draw.choice((2**20, 2**30, 2**40))

    def change(values: dict[str, Any]) -> None:
        for entry in (draw.choice(values["module"]["inputs"]), draw.choice(values["fields"])):
            entry["cardinality"] = rows

    return _edit_model(folder, change)


def other_places(folder: Path, draw: Random) -> str:
    """Tables and layers of a factory's module that keep other features, or are other modules."""

    def change(values: dict[str, Any]) -> None:
        modules = values["module"]["narrow"]["modules"]
        name = draw.choice(sorted(modules))
        entry = modules.pop(name)
        key = draw.choice(sorted(entry))
        if isinstance(entry[key], list):
            entry[key] = draw.choice(([], entry[key][:-1], [0], [*entry[key], 3], entry[key][::-1], [2**40]))
        modules[draw.choice((name, "", ".", "deep", "tables", "module", *modules))] = entry

    return _edit_model(folder, change)


MODEL: Final[dict[str, Edit]] = {"own-module": own_module, "hidden": hidden, "layers": layers}
MODULE: Final[dict[str, Edit]] = {
    "own-module": own_module, "wide": wide, "many-ids": many_ids, "other-places": other_places,
}  # fmt: skip
WEIGHTS: Final[dict[str, Edit]] = {"unlisted": unlisted}
SETTINGS: Final[dict[str, Edit]] = {"own-module": named_in_settings}
