"""What is built can be installed and used: the wheel, the sdist, and the commands of docs/install.md."""

import os
import re
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from email import message_from_bytes
from pathlib import Path

import pytest

import fieldwise

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
INSTALL = (ROOT / "docs" / "install.md").read_text(encoding="utf-8")
SMALL = "--set data.rows=2000 --set model.width=4 --set pretrain.epochs=1 --set retrain.epochs=1"


def done(command: list[str] | str, folder: Path, **environment: str) -> str:
    """What a command prints; it must succeed."""
    ran = subprocess.run(
        command,
        shell=isinstance(command, str),
        cwd=folder,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, f"{command}\n{ran.stdout}\n{ran.stderr}"
    return ran.stdout


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the wheel and the sdist of this tree."""
    folder = tmp_path_factory.mktemp("dist")
    done([sys.executable, "-m", "hatchling", "build", "-d", str(folder)], ROOT)
    return folder


@pytest.fixture(scope="module")
def wheel(built: Path) -> zipfile.ZipFile:
    (path,) = built.glob("*.whl")
    return zipfile.ZipFile(path)


def test_the_wheel_holds_every_file_of_the_package_and_nothing_else(wheel: zipfile.ZipFile) -> None:
    package = {path.relative_to(ROOT / "src").as_posix() for path in (ROOT / "src").rglob("*") if path.is_file()}
    package = {name for name in package if "__pycache__" not in name and ".egg-info" not in name}
    held = {name for name in wheel.namelist() if ".dist-info/" not in name}
    assert held == package
    assert {"fieldwise/py.typed", "fieldwise/presets/paper.toml", "fieldwise/reports/assets/page.html"} <= held


def test_the_wheel_says_what_it_is(wheel: zipfile.ZipFile) -> None:
    folder = f"fieldwise-{fieldwise.__version__}.dist-info"
    said = message_from_bytes(wheel.read(f"{folder}/METADATA"))
    assert said["Version"] == fieldwise.__version__
    assert {line.partition(", ")[0] for line in said.get_all("Project-URL", [])} == {
        "Repository",
        "Issues",
        "Changelog",
    }
    classifiers = said.get_all("Classifier", [])
    assert {"Operating System :: POSIX :: Linux", "Typing :: Typed"} <= set(classifiers)
    status = "Development Status :: 3 - Alpha"
    assert (status in classifiers) == fieldwise.__version__.startswith("0.")
    assert wheel.read(f"{folder}/entry_points.txt").decode().split() == [
        "[console_scripts]", "fieldwise", "=", "fieldwise.cli:main",
    ]  # fmt: skip
    assert f"{folder}/licenses/LICENSE" in wheel.namelist()


def test_the_command_runs_from_the_unpacked_wheel(wheel: zipfile.ZipFile, tmp_path: Path) -> None:
    wheel.extractall(tmp_path / "unpacked")
    code = "import fieldwise, fieldwise.cli; print(fieldwise.__file__); fieldwise.cli.main()"
    said = done([sys.executable, "-c", code, "list"], tmp_path, PYTHONPATH=str(tmp_path / "unpacked"))
    assert said.splitlines()[0] == str(tmp_path / "unpacked" / "fieldwise" / "__init__.py")
    assert "paper" in said


def test_the_sdist_holds_all_that_is_tracked(built: Path) -> None:
    (path,) = built.glob("*.tar.gz")
    with tarfile.open(path) as archive:
        held = {name.partition("/")[2] for name in archive.getnames()}
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=False)
    if listed.returncode or not listed.stdout:
        pytest.skip("not a checkout: git lists no files")
    tracked = {name for name in listed.stdout.splitlines() if (ROOT / name).exists()}
    assert sorted(tracked - held) == []
    assert held - tracked >= {"PKG-INFO"}
    assert not [name for name in held if name.startswith(("site/", "runs/", "docs/reference/", ".venv/"))]


def blocks(heading: str) -> list[str]:
    """The commands that docs/install.md shows below a heading, line by line."""
    (section,) = re.findall(rf"^## {heading}\n(.*?)(?=^## )", INSTALL, flags=re.DOTALL | re.MULTILINE)
    return [line for block in re.findall(r"```sh\n(.*?)```", section, flags=re.DOTALL) for line in block.splitlines()]


def test_install_md_names_every_extra() -> None:
    shown = set(re.findall(r"^\| `(\w+)` \|", INSTALL, flags=re.MULTILINE))
    assert shown == set(PROJECT["optional-dependencies"]) - {"dev"}


@pytest.fixture
def unpacked(built: Path, tmp_path: Path) -> Path:
    """The sdist as someone who fetched it has it."""
    (path,) = built.glob("*.tar.gz")
    with tarfile.open(path) as archive:
        archive.extractall(tmp_path, filter="data")
    return tmp_path / path.name.removesuffix(".tar.gz")


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_the_sdist_s_own_tests_pass(unpacked: Path) -> None:
    done([sys.executable, "-m", "pytest"], unpacked, PYTHONPATH=str(unpacked / "src"))


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("heading", ["From a checkout", "From a built wheel"])
def test_the_commands_of_install_md_give_a_working_command_in_an_empty_environment(
    heading: str, unpacked: Path
) -> None:
    clean = {"PYTHONPATH": "", "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
    for command in blocks(heading):
        said = done(command, unpacked, **clean)
    assert "Usage: fieldwise" in said
    place = {"From a checkout": ".venv", "From a built wheel": "fresh"}[heading]
    program = unpacked / place / "bin" / "fieldwise"
    elsewhere = unpacked.parent / "elsewhere"
    elsewhere.mkdir()
    done(f"{program} run --budget 8 --device cpu --out run {SMALL}", elsewhere, **clean)
    assert (elsewhere / "run" / "report-planted.html").stat().st_size > 100_000
    own = "name for name in fw.__all__ if name != 'FieldwiseClassifier'"  # needs the extra sklearn
    names = f"import fieldwise as fw; [getattr(fw, name) for name in ({own})]; print(fw.__file__)"
    home = Path(done([str(program.with_name("python")), "-c", names], elsewhere, **clean).strip())
    assert home.is_relative_to(unpacked / (place if place == "fresh" else "src"))
