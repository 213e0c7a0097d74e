"""The command that looks at a table before anything is prepared."""

from pathlib import Path
from typing import Annotated, Final

import typer

from fieldwise.cli.options import EngineName, Header, Label, Master, Sets, tables_of
from fieldwise.core.errors import SettingsError
from fieldwise.reports.progress import show_view, watching

DEFAULT: Final = Path("settings.toml")


def check(
    file: Annotated[Path, typer.Argument(help="A table (a file, folder or glob), or a TOML file of settings.")],
    label: Label = None,
    header: Header = None,
    out: Annotated[
        Path | None, typer.Option(help="The settings file to write; default: settings.toml, if there is none.")
    ] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace the settings file if it exists.")] = False,
    engine: EngineName = None,
    master: Master = None,
    set_: Sets = None,
) -> None:
    """Show what each column of a table is, why, and what is suspicious; write settings to edit."""
    is_settings = file.suffix.lower() == ".toml"
    values, trusted = tables_of(
        file if is_settings else None, None, set_, raw=None if is_settings else file, label=label, header=header,
        engine=engine, master=master,
    )  # fmt: skip
    if not is_settings and values["data"].get("name", "table") == "table" and "label" not in values["data"]:
        raise SettingsError("No label is named. Allowed: the column with the clicks. Add --label NAME.")
    from fieldwise.pipeline.check import check_tables, write_settings

    written = out or DEFAULT
    if out is not None and out.exists() and not overwrite:
        write_settings(out, "", overwrite)  # refuses before any work
    with watching() as (console, watcher):
        found, text = check_tables(values, trusted, watcher.rows)
        show_view(console, found.view())
        if out is None and DEFAULT.exists() and not overwrite:
            console.print(f"{DEFAULT} exists and was not replaced: add --out FILE, or --overwrite.", soft_wrap=True)
            return
        write_settings(written, text, overwrite)
        console.print(f"Settings: {written}", soft_wrap=True)
