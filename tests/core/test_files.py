import os
import resource
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv as csv
import pyarrow.parquet as pq
import pytest
from safetensors.numpy import save_file

from fieldwise.core.errors import DataError, DiskError
from fieldwise.core.files import replacing, unfinished, write_json, write_text
from fieldwise.core.plain_files import check_regular, check_safetensors, parse_json, read_json


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
    assert not [work for work in unfinished if work.is_relative_to(tmp_path)]


def test_a_folder_that_cannot_be_made_leaves_no_unfinished_file(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(OSError, match="file"):
        write_text(tmp_path / "file" / "new.txt", "text")
    assert not [work for work in unfinished if work.is_relative_to(tmp_path)]


def test_json_refuses_what_json_cannot_say(tmp_path: Path) -> None:
    write_json(tmp_path / "a.json", {"é": [1, None]})
    assert "null" in (tmp_path / "a.json").read_text()
    with pytest.raises(ValueError, match="JSON"):
        write_json(tmp_path / "a.json", float("nan"))


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("[" * 200_000, "nested too deep"),
        ("[" * 900 + "]" * 900, "nested (too|more than 64) deep"),
        ('{"a":' * 100 + "1" + "}" * 100, "nested more than 64 deep"),
        ("[-Infinity]", "-Infinity, which is not a finite number"),
        ("NaN", "NaN, which"),
        ("[1e999]", "1e999, which"),
        ("1" + "0" * 400, "a number of 401 digits"),
        ("1" + "0" * 5000, "a number of 5001 digits"),
        ('"\\ud800"', "surrogates not allowed"),
        ("{", "Expecting"),
    ],
)
def test_json_that_is_no_plain_value_is_a_value_error(text: str, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        parse_json(text)


def test_plain_values_are_read_as_they_were_written(tmp_path: Path) -> None:
    value = {"é": [1, -(2**63), 2**64 - 1, 1e-3, None, True, "😀"], "deep": [[[[[[]]]]]]}
    write_json(tmp_path / "a.json", value)
    assert read_json(tmp_path / "a.json") == value
    assert parse_json('"\\ud83d\\ude00"') == "😀"


def test_only_regular_files_of_sane_size_are_read(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "endless").symlink_to("/dev/zero")
    for name in ("pipe", "endless"):
        with pytest.raises(OSError, match="not a regular file"):
            read_json(tmp_path / name)
        with pytest.raises(OSError, match="not a regular file"):
            check_regular(tmp_path / name)
    with pytest.raises(OSError, match=r"directory|regular"):
        read_json(tmp_path)
    write_text(tmp_path / "long.json", " " * 99 + "1")
    assert read_json(tmp_path / "long.json", limit=101) == 1
    with pytest.raises(ValueError, match="more than 99 bytes"):
        read_json(tmp_path / "long.json", limit=99)
    (tmp_path / "bytes.json").write_bytes(b'"\xff"')
    with pytest.raises(ValueError, match="utf-8"):
        read_json(tmp_path / "bytes.json")


def write_all(path: Path, text: str) -> None:
    path.write_text(text)


WRITERS: dict[str, Callable[[Path], None]] = {
    "text": lambda work: write_all(work, "x" * 100_000),
    "parquet": lambda work: pq.write_table(pa.table({"a": np.arange(100_000)}), work),
    "csv": lambda work: csv.write_csv(pa.table({"a": np.arange(100_000)}), work),
}


@pytest.mark.parametrize("name", WRITERS)
def test_a_full_disk_names_the_folder_whichever_library_writes(name: str, tmp_path: Path) -> None:
    def write() -> None:
        with replacing(tmp_path / "a") as work:
            work.unlink()
            work.symlink_to("/dev/full")  # where every write says that there is no space left
            WRITERS[name](work)

    with pytest.raises(DiskError) as caught:
        write()
    assert str(caught.value).startswith(f"No room left at '{tmp_path}' (No space left on device). ")
    assert not list(tmp_path.iterdir())


def test_weights_on_a_full_disk_name_the_folder(tmp_path: Path) -> None:
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    try:  # safetensors passes the system's message on only as text
        resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, before[1]))
        with pytest.raises(DiskError) as caught, replacing(tmp_path / "a") as work:
            save_file({"w": np.ones(100_000)}, work)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert str(caught.value).startswith(f"No room left at '{tmp_path}' (File too large). ")
    assert not (tmp_path / "a").exists()


def test_rows_that_speak_of_a_full_disk_are_not_one(tmp_path: Path) -> None:
    with pytest.raises(DataError), replacing(tmp_path / "a"):
        raise DataError("The line: 'No space left on device'.")


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
            save_file({"a": np.zeros(2)}, work)
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


def test_a_safetensors_file_is_as_long_as_its_header_says(tmp_path: Path) -> None:
    path = tmp_path / "a.safetensors"
    save_file({"a": np.zeros(4), "b": np.ones(2)}, path)
    check_safetensors(path)
    os.truncate(path, 2**34)  # sparse: it takes no room on disk, and 16 GiB of addresses when it is mapped
    with pytest.raises(ValueError, match=r"has 17,179,869,184 bytes, its header says"):
        check_safetensors(path)
    path.write_bytes((2**40).to_bytes(8, "little"))
    with pytest.raises(ValueError, match="a header of"):
        check_safetensors(path)
