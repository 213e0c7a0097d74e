"""Names that users choose are shown as plain text everywhere."""

from pathlib import Path

import pytest

from fieldwise.cli.app import app
from fieldwise.core.comparison import CellRecord, Comparison
from fieldwise.core.errors import SettingsError
from fieldwise.pipeline.settings import RunSettings
from fieldwise.reports.comparison import tables
from fieldwise.reports.run import markdown
from fieldwise.reports.run.markdown import markdown_table, plain
from tests.command_line import FAST, cli

NAMES = [
    "a|b",
    "`x`",
    "<script>",
    "*bold*",
    "[a](http://b)",
    "two\nlines",
    "tab\t",
    "\x1b[31mred",
    "&amp;",
    "_a_",
    "\\",
]


@pytest.mark.parametrize("out", ["run[/b]", "run[red]:smile:"])
def test_a_folder_may_have_brackets_and_colons(out: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    flags = ["--out", str(tmp_path / out), *FAST, "--set", "data.rows=1000", "--search", "uniform", "--model", "fm"]
    flags = [flag for flag in flags if flag != "search.epochs=2"]
    sets = [flag for place, flag in enumerate(flags) if not (flag == "--set" and flags[place + 1 :][:1] == ["--set"])]
    app(["run", *sets], standalone_mode=False)
    app(["pretrain", "--out", str(tmp_path / out)], standalone_mode=False)
    app(["prepare", "--out", str(tmp_path / f"data-{out}"), "--set", "data.rows=1000"], standalone_mode=False)
    said = capsys.readouterr().out
    assert f"Report: {tmp_path / out}/report-planted.md" in said
    assert f"pretrain is complete in {tmp_path / out}" in said
    assert f"fields in {tmp_path}/data-{out}" in said


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("user_id", "user_id"),
        ("price (EUR) - 5%", "price (EUR) - 5%"),
        ("`x`", "\\`x\\`"),
        ("<script>", "\\<script\\>"),
        ("*bold*", "\\*bold\\*"),
        ("_a_b_", "\\_a_b\\_"),
        ("[a](b)", "\\[a\\](b)"),
        ("&amp; $x$ ~y~", "\\&amp; \\$x\\$ \\~y\\~"),
        ("two\nlines\r\n\x1b[0m", "two lines   \\[0m"),
        ("\\", "\\\\"),
    ],
)
def test_markdown_shows_a_name_as_it_is(name: str, shown: str) -> None:
    assert plain(name) == shown


def test_a_report_has_one_row_a_field_whatever_it_is_called() -> None:
    rows = markdown_table(markdown.WIDTH_HEADS, markdown.plain_rows((name, 1, 2, 3, 4) for name in NAMES))
    assert len(rows) == 2 + len(NAMES)
    for row in rows:
        assert "\n" not in row
        assert row.replace("\\|", "").count("|") == 6
    text = "\n".join(rows)
    for raw in ("<script>", " `x` ", " *bold* ", "[a](", "\x1b", " &amp;"):
        assert raw not in text


def test_why_a_cell_failed_is_text_too() -> None:
    cell = CellRecord(
        model="fm", method="ham", budget="8", seed=0, state="failed", error="[model] <b> | `x`\nline",
        uses_pretrained=True, search_memory=None, record=None,
    )  # fmt: skip
    found = Comparison(cells=[cell], baseline="ham", comparisons=0, jobs=1, settings={}, rows=[], full=[])
    assert "| fm | ham | 8 | 0 | \\[model\\] \\<b\\> \\| \\`x\\` line |" in tables.markdown(found)


@pytest.mark.parametrize("table_", ["run", "data", "split"])
@pytest.mark.parametrize("seed", [-1, 2**63, 10**30])
def test_a_seed_is_0_or_more_and_of_63_bits(table_: str, seed: int) -> None:
    values = {"seeds": [seed]} if table_ == "run" else {"seed": seed}
    with pytest.raises(
        SettingsError, match=rf"\[{table_}\] seed.* = {seed}: input should be (greater|less) than"
    ) as no:
        RunSettings.parse({table_: values})
    assert len(str(no.value).splitlines()) == 1


def test_help_names_the_tables_that_flags_stand_for() -> None:
    said = cli("run", "--help").stdout
    assert "[data] raw:" in said
    assert "[search] name" in said
