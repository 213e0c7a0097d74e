"""A running search on a terminal, and TensorBoard."""

import json
import os
from pathlib import Path
from threading import Timer

import pytest
from rich.console import Console

from fieldwise.cli.app import app
from fieldwise.core.errors import SettingsError
from fieldwise.core.lock import exclusive
from fieldwise.core.records import Epoch
from fieldwise.reports.run import events, journal
from fieldwise.reports.run.watch import frame, spark


def shown(lines: list[dict[str, object]], rows: int = 24) -> str:
    console = Console(width=100, height=40, record=True, file=None, force_terminal=False, quiet=False)
    with console.capture() as captured:
        console.print(frame(lines, rows=rows, width=100))
    return captured.get()


def gate(step: int, user: int, city: int) -> dict[str, object]:
    widths = {"user": user, "city": city}
    return {"event": "gate", "title": "search 6 columns, seed 0", "step": step, "live": user + city,
            "cost": user + city, "limit": 6, "widths": widths}  # fmt: skip


def test_a_frame_shows_counts_target_accuracy_and_bars(finished: Path) -> None:
    text = shown(list(journal.read_metrics(finished)))
    assert "pretrain, seed 0" in text
    assert "search 40% parameters, seed 1, step 10: " in text
    assert "validation AUC" in text
    assert "4 of 4" in text
    assert "noise_c" in text


def test_what_a_resumed_search_says_again_counts_once() -> None:
    lines = [gate(0, 8, 8), gate(100, 4, 1), gate(200, 3, 3), gate(100, 4, 2)]
    text = shown(lines)
    assert "step 100: 6 columns live, 6 columns against a target of 6" in " ".join(text.split())
    bars = {line.split()[0]: (line.count("█"), line.count("░")) for line in text.splitlines() if " of 8" in line}
    assert bars == {"user": (30, 30), "city": (15, 45)}


def test_many_fields_are_cut_to_the_screen_and_names_are_text() -> None:
    lines = [{**gate(0, 1, 1), "widths": {f"[bold]{place}": 1 for place in range(500)}}]
    text = shown(lines, rows=10)
    assert "[bold]0" in text
    assert "and 490 more fields" in text


def test_a_folder_is_at_work_again_once_something_is_recorded(tmp_path: Path) -> None:
    writer = journal.Journal(tmp_path)
    writer.begin("pretrain, seed 0", done=False)
    assert not journal.finished(tmp_path)
    (tmp_path / "record.json").write_text("[]")
    assert journal.finished(tmp_path)
    later = (tmp_path / "record.json").stat().st_mtime_ns + 1_000
    writer.begin("search 5 columns, seed 0", done=False)
    os.utime(tmp_path / journal.FILE, ns=(later, later))
    assert not journal.finished(tmp_path)


def test_nothing_yet_is_said() -> None:
    assert "no stage of this run has begun" in shown([])
    assert spark([1, 1]) == "▁▁"
    assert spark([0, 7]) == "▁█"


def test_tensorboard_holds_the_epochs(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard", reason="the extra `tensorboard` is not installed")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    writer = events.Events(tmp_path)
    writer.begin("search 6 columns, seed 0", done=False)
    writer.gate(0, 24, 24, 6, {"user": 24})
    writer.epoch("search", Epoch(epoch=1, loss=0.5, auc=0.75, log_loss=0.6, seconds=1.0))
    found = EventAccumulator(str(tmp_path)).Reload()
    title = "search 6 columns, seed 0"
    assert [(e.step, e.value) for e in found.Scalars(f"{title}/validation AUC")] == [(1, 0.75)]
    assert [(e.step, e.value) for e in found.Scalars(f"{title}/live columns")] == [(0, 24.0)]


def test_tensorboard_without_its_package_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(events, "find_spec", lambda name: None)
    with pytest.raises(SettingsError, match=r"fieldwise\[tensorboard\]"):
        events.Events(tmp_path)


def test_a_folder_that_nobody_works_in_is_told_and_not_waited_for(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "run[/b]"
    out.mkdir(parents=True)
    app(["watch", str(out)], standalone_mode=False)
    assert f"No process is running in '{out}', and it has no metrics." in capsys.readouterr().out
    journal.Journal(out).begin("pretrain, seed 0", done=False)
    for words in (["watch", str(out)], ["watch", str(out), "--once"]):
        app(words, standalone_mode=False)
        said = capsys.readouterr().out
        assert "pretrain, seed 0" in said
        assert "No process has run here since 20" in said
        assert "the run is not complete. Run the same command to resume" in said


def test_a_folder_at_work_is_watched_until_its_run_ends(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    journal.Journal(tmp_path).begin("pretrain, seed 0", done=False)
    with exclusive(tmp_path):
        app(["watch", str(tmp_path), "--once"], standalone_mode=False)
        assert "No process" not in capsys.readouterr().out
        ending = Timer(0.3, lambda: (tmp_path / "record.json").write_text("[]"))
        ending.start()
        app(["watch", str(tmp_path), "--every", "0.1"], standalone_mode=False)
        ending.join()
    app(["watch", str(tmp_path), "--once"], standalone_mode=False)
    assert "No process" not in capsys.readouterr().out


def test_lines_that_lack_values_are_left_out(tmp_path: Path) -> None:
    good = {"event": "epoch", "title": "pretrain", "epoch": 1, "loss": None, "auc": 0.5}
    bad = [
        {**good, "auc": "high"},
        {key: value for key, value in good.items() if key != "loss"},
        {"event": "gate", "title": "search", "step": 1, "live": 2, "cost": 2, "limit": 2, "widths": {"a": "x"}},
        {"event": "gate", "title": "search", "step": 1, "live": 2, "cost": 2, "limit": 2},
        {"event": "command"},
    ]
    (tmp_path / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in [*bad, good]))
    assert list(journal.read_metrics(tmp_path)) == [good]
