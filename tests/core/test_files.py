import resource
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv as csv
import pyarrow.parquet as pq
import pytest
from safetensors.numpy import save_file

from fieldwise.core.errors import DataError, DiskError
from fieldwise.core.files import replacing, write_json, write_text


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


def test_json_refuses_what_json_cannot_say(tmp_path: Path) -> None:
    write_json(tmp_path / "a.json", {"é": [1, None]})
    assert "null" in (tmp_path / "a.json").read_text()
    with pytest.raises(ValueError, match="JSON"):
        write_json(tmp_path / "a.json", float("nan"))


def write_all(path: Path, text: str) -> None:
    path.write_text(text)


WRITERS: dict[str, Callable[[Path], None]] = {
    "text": lambda work: write_all(work, "x" * 100_000),
    "parquet": lambda work: pq.write_table(pa.table({"a": np.arange(100_000)}), work),
    "csv": lambda work: csv.write_csv(pa.table({"a": np.arange(100_000)}), work),
}


@pytest.mark.parametrize("name", WRITERS)
def test_a_full_disk_names_the_folder_whichever_library_writes(name: str, tmp_path: Path) -> None:
    (tmp_path / ".a.partial").symlink_to("/dev/full")  # where every write says that there is no space left
    with pytest.raises(DiskError) as caught, replacing(tmp_path / "a") as work:
        WRITERS[name](work)
    assert str(caught.value).startswith(f"No room left at '{tmp_path}' (No space left on device). ")
    assert not list(tmp_path.iterdir())


def test_weights_on_a_full_disk_name_the_folder(tmp_path: Path) -> None:
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    try:  # safetensors tells what the system says as text alone
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
