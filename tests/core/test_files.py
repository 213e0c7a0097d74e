import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from fieldwise.core.files import replacing, unfinished, write_json, write_text


def test_a_file_is_whole_or_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "new" / "file.txt"
    write_text(path, "old")

    def fail() -> None:
        with replacing(path) as work:
            work.write_text("half")
            raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"):
        fail()
    assert path.read_text() == "old"
    assert [p.name for p in path.parent.iterdir()] == ["file.txt"]
    assert unfinished == set()


def test_json_refuses_what_json_cannot_say(tmp_path: Path) -> None:
    write_json(tmp_path / "a.json", {"é": [1, None]})
    assert "null" in (tmp_path / "a.json").read_text()
    with pytest.raises(ValueError, match="JSON"):
        write_json(tmp_path / "a.json", float("nan"))


def test_two_writers_of_one_file_do_not_meet(tmp_path: Path) -> None:
    path = tmp_path / "report.html"
    with replacing(path) as first, replacing(path) as second:
        assert first != second
        first.write_text("first")
        second.write_text("second")
    assert path.read_text() == "first"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("mask", [0o022, 0o027, 0o077, 0o002])
def test_every_file_has_the_mode_of_a_new_file(mask: int, tmp_path: Path) -> None:
    before = os.umask(mask)
    try:
        write_text(tmp_path / "text", "a")
        with replacing(tmp_path / "weights") as work:
            save_file({"a": torch.zeros(2)}, work)
    finally:
        os.umask(before)
    assert {stat.S_IMODE(path.stat().st_mode) for path in tmp_path.iterdir()} == {0o666 & ~mask}


def test_what_a_killed_process_left_is_cleared_and_what_a_living_one_writes_is_not(tmp_path: Path) -> None:
    code = (
        "import os, sys\nfrom pathlib import Path\nfrom fieldwise.core.files import replacing\n"
        "with replacing(Path(sys.argv[1]) / 'a[b].json') as work:\n"
        "    work.write_text('half')\n    os.kill(os.getpid(), 9)\n"
    )
    subprocess.run([sys.executable, "-c", code, str(tmp_path / "dead")], check=False)
    assert len(list((tmp_path / "dead").iterdir())) == 1
    write_text(tmp_path / "dead" / "other", "a")
    assert [path.name for path in (tmp_path / "dead").iterdir()] == ["other"]
    with replacing(tmp_path / "living" / "file"):
        subprocess.run(
            [sys.executable, "-c", code.replace("os.kill(os.getpid(), 9)", "pass"), str(tmp_path / "living")],
            check=True,
        )
        assert len(list((tmp_path / "living").iterdir())) == 2
