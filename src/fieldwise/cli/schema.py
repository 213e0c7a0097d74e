"""The JSON schema of settings files, so that an editor can complete and check them."""

import json
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any

import typer
from pydantic import BaseModel, ValidationError

from fieldwise.core.files import write_text
from fieldwise.core.registry import resolve

Node = dict[str, Any]


def schema(
    comparison: Annotated[
        bool, typer.Option("--comparison", help="The schema of `compare` settings instead of `run` settings.")
    ] = False,
    out: Annotated[Path | None, typer.Option("--out", "-o", help="The file to write; default: print.")] = None,
) -> None:
    """Print the JSON schema of a settings file, for editors that check TOML."""
    text = json.dumps(comparison_schema() if comparison else run_schema(), indent=1) + "\n"
    if out is None:
        typer.echo(text, nl=False)
    else:
        write_text(out, text)
        typer.echo(f"Schema: {out}")


def run_schema() -> Node:
    """The schema of a settings file for `fieldwise run`."""
    from fieldwise.data.engines import ENGINES
    from fieldwise.models import MODELS
    from fieldwise.searches import DEFAULT, SEARCHES

    file = _File()
    tables = {
        **_shared(file),
        "engine": file.named("engine", ENGINES, "auto"),
        "model": file.named("model", MODELS, "dcnv2"),
        "search": file.named("search", SEARCHES, DEFAULT),
    }
    return file.schema("Settings of `fieldwise run`", tables)


def comparison_schema() -> Node:
    """The schema of a settings file for `fieldwise compare`."""
    from fieldwise.comparison.settings import Compare
    from fieldwise.models import MODELS
    from fieldwise.searches import SEARCHES

    file = _File()
    tables = {
        **_shared(file),
        "compare": file.table("compare", Compare),
        "model": {"type": "object", "description": "Settings that all models share."},
        "models": file.labeled("model", MODELS),
        "methods": file.labeled("search", SEARCHES),
    }
    return file.schema("Settings of `fieldwise compare`", tables)


def _shared(file: "_File") -> Node:
    """The tables that both kinds of file have."""
    from fieldwise.data import SOURCES
    from fieldwise.data.split import SPLIT_RULES
    from fieldwise.pipeline.settings import Run
    from fieldwise.presets import PRESETS
    from fieldwise.train.pretraining import Pretrain
    from fieldwise.train.retraining import Retrain

    return {
        "preset": {"enum": list(PRESETS), "description": "Named settings below those of this file."},
        "run": file.table("run", Run),
        "data": file.named("data", SOURCES, "planted"),
        "split": file.named("split", SPLIT_RULES, "random"),
        "pretrain": file.table("pretrain", Pretrain),
        "retrain": file.table("retrain", Retrain),
    }


class _File:
    """Collects the definitions of one schema; each table refers to them."""

    def __init__(self) -> None:
        self._definitions: Node = {}

    def table(self, key: str, cls: type[BaseModel]) -> Node:
        """A reference to a settings class.

        Nothing is required at the top level: flags such as `--raw` may supply it.
        """
        node = cls.model_json_schema(ref_template=f"#/$defs/{key}.{{model}}")
        for name, inner in node.pop("$defs", {}).items():
            self._definitions[f"{key}.{name}"] = inner
        node.pop("required", None)
        with suppress(ValidationError):  # a class without a complete default, such as a source that needs `raw`
            for name, value in cls().model_dump(mode="json").items():
                if "default" in node["properties"][name]:
                    node["properties"][name]["default"] = value  # as a file holds it: budgets are text there
        self._definitions[key] = node
        return {"$ref": f"#/$defs/{key}"}

    def named(self, kind: str, names: Mapping[str, str], default: str) -> Node:
        """A table whose key `name` chooses its class; without it, the default."""
        return {"anyOf": [self._one(kind, names, default), *self._chosen(kind, names)]}

    def labeled(self, kind: str, names: Mapping[str, str]) -> Node:
        """Tables below labels: a label that is a name chooses its class, any other label needs the key `name`."""
        chosen = self._chosen(kind, names)
        known = {name: {"anyOf": [self._one(kind, names, name), *chosen]} for name in names}
        return {"type": "object", "properties": known, "additionalProperties": {"anyOf": chosen}}

    def _one(self, kind: str, names: Mapping[str, str], name: str) -> Node:
        reference = self.table(f"{kind}.{name}", resolve(kind, names, name))
        node = self._definitions[f"{kind}.{name}"]
        node["properties"] = {"name": {"const": name, "description": node["description"]}, **node.get("properties", {})}
        return reference

    def _chosen(self, kind: str, names: Mapping[str, str]) -> list[Node]:
        """One variant per name, and one for a class outside the package, `package.module:Class`."""
        own = {"type": "object", "properties": {"name": {"type": "string", "pattern": ":"}}, "required": ["name"]}
        return [{**self._one(kind, names, name), "required": ["name"]} for name in names] + [own]

    def schema(self, title: str, tables: Node) -> Node:
        """The whole file."""
        return {
            "$schema": "https://json-schema.org/draft/2020-12/schema",
            "title": title,
            "type": "object",
            "properties": tables,
            "additionalProperties": False,
            "$defs": self._definitions,
        }
