from pathlib import Path

import pytest

from fieldwise.core.errors import SettingsError
from fieldwise.core.registry import name_of, resolve, unknown
from fieldwise.core.settings import Settings, differing, override, read_toml, validate


class Inner(Settings):
    size: int = 3


class Outer(Settings):
    rate: float = 0.1
    on: bool = False
    inner: Inner = Inner()


def test_flags_lie_over_the_file_and_are_typed() -> None:
    values = override({"a": {"rate": 1.0}}, ["a.rate=1e-3", "a.on=false", "a.inner.size=7", "b.name=it's text"])
    assert values == {"a": {"rate": 1e-3, "on": False, "inner": {"size": 7}}, "b": {"name": "it's text"}}
    found, problems = validate(Outer, values["a"], "a")
    assert problems == []
    assert found == Outer(rate=1e-3, inner=Inner(size=7))


@pytest.mark.parametrize("text", ["a.b", "b=3", ".=3", "a.=2", ""])
def test_a_flag_of_another_form_is_refused(text: str) -> None:
    with pytest.raises(SettingsError, match=r"table\.key=value"):
        override({}, [text])


def test_a_flag_into_a_value_is_refused() -> None:
    with pytest.raises(SettingsError, match="'rate' is a value"):
        override({"a": {"rate": 1}}, ["a.rate.x=1"])


def test_all_problems_are_told_at_once_with_the_nearest_name() -> None:
    _, problems = validate(Outer, {"raet": 1, "on": "maybe", "inner": {"sise": 1, "size": "x"}}, "model")
    text = "\n".join(problems)
    assert "[model] unknown 'raet'. Did you mean 'rate'? Choose from: inner, on, rate." in text
    assert "[model.inner] unknown 'sise'. Did you mean 'size'?" in text
    assert "[model] on = 'maybe'" in text
    assert "[model] inner.size = 'x'" in text
    assert len(problems) == 4


def test_settings_are_frozen_and_finite() -> None:
    with pytest.raises(ValueError, match="frozen"):
        Outer().rate = 3  # type: ignore[misc]
    with pytest.raises(ValueError, match="finite"):
        Outer(rate=float("nan"))


def test_files_that_are_not_toml_are_refused(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="Cannot read settings"):
        read_toml(tmp_path / "none.toml")
    (tmp_path / "bad.toml").write_text("a = = 3")
    with pytest.raises(SettingsError, match=r"not TOML.*line 1"):
        read_toml(tmp_path / "bad.toml")
    (tmp_path / "good.toml").write_text("[a]\nb = 1e-3")
    assert read_toml(tmp_path / "good.toml") == {"a": {"b": 1e-3}}


def test_differing_names_the_keys() -> None:
    assert differing({"a": {"b": 1, "c": 2}}, {"a": {"b": 1, "c": 3}, "d": 0}) == ["a.c (2 -> 3)", "d (None -> 0)"]


TABLE = {"outer": f"{__name__}:Outer"}


def test_names_resolve_to_classes_and_are_never_evaluated() -> None:
    assert resolve("x", TABLE, "outer") is Outer
    assert resolve("x", {}, f"{__name__}:Outer") is Outer
    assert name_of(Outer(), TABLE) == "outer"
    assert name_of(Inner(), TABLE) == f"{__name__}:Inner"
    with pytest.raises(SettingsError, match="Did you mean 'outer'"):
        resolve("x", TABLE, "outter")
    for path in ("no.such.module:Class", f"{__name__}:Missing", "os:system('x')", ":x"):
        with pytest.raises(SettingsError, match="cannot import"):
            resolve("x", TABLE, path)
    with pytest.raises(SettingsError, match="not a class"):
        resolve("x", TABLE, f"{__name__}:TABLE")
    assert "Did you mean" not in unknown("x", "zzz", TABLE)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("a = 2024-06-01", "holds the date or time 2024-06-01; write it in quotes"),
        ("[a]\nb = [{c = 13:00:00}]", "the date or time 13:00:00"),
        ("a = " + "[" * 3_000 + "]" * 3_000, "nested too deep"),
        ("a = " + "[" * 90 + "]" * 90, "nested more than 64 deep"),
        ("a." * 20_000 + "a = 1", "a key is nested more than 64 deep"),
        ("a = -inf", "-inf, which is not a finite number"),
        ("a = 1" + "0" * 5_000, "are not understood"),
    ],
)
def test_toml_that_no_setting_can_be_is_one_line(tmp_path: Path, text: str, says: str) -> None:
    (tmp_path / "s.toml").write_text(text)
    with pytest.raises(SettingsError, match=says) as caught:
        read_toml(tmp_path / "s.toml")
    assert "\n" not in str(caught.value)


def test_a_flag_s_date_is_text_and_its_nesting_bounded() -> None:
    assert override({}, ["a.b=2024-06-01"]) == {"a": {"b": "2024-06-01"}}
    for value in ("[2024-06-01]", "[" * 3_000 + "]" * 3_000, "[" * 90 + "]" * 90, "nan", "1" + "0" * 5_000):
        with pytest.raises(SettingsError, match="is not understood: "):
            override({}, [f"a.b={value}"])


def test_only_trusted_classes_are_imported() -> None:
    path = f"{__name__}:Outer"
    assert resolve("x", {}, path, trusted={path}) is Outer
    assert resolve("x", TABLE, "outer", trusted=()) is Outer
    with pytest.raises(SettingsError, match=f"Add --set x.name={path}"):
        resolve("x", {}, path, trusted=())
    for name in ("fieldwise.cli:main", "fieldwise.core.settings:Settings"):
        with pytest.raises(SettingsError, match="unknown"):
            resolve("x", TABLE, name)
