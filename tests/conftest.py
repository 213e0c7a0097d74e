"""Small data that every test can stand on."""

import os
import signal
import zipfile
from pathlib import Path

import numpy as np
import pytest

os.environ["OMP_NUM_THREADS"] = "1"  # tests run side by side, one core each; subprocesses inherit it
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # in a background job; subprocesses would inherit it
    signal.signal(signal.SIGINT, signal.default_int_handler)
os.environ.setdefault("JAVA_TOOL_OPTIONS", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")  # Spark compiles little, once

import torch

from fieldwise.core.schema import Schema
from fieldwise.data.planted import Planted
from fieldwise.data.prepare import prepare
from fieldwise.data.store import Dataset
from fieldwise.models.dcnv2 import DCNv2
from fieldwise.models.model import Model
from fieldwise.train.task import Task
from tests.small_models import every_model


@pytest.fixture(autouse=True)
def _fixed_randomness() -> None:
    torch.manual_seed(0)


@pytest.fixture(scope="session")
def planted(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    """A planted dataset of 6,000 rows."""
    return prepare(Planted(rows=6_000), tmp_path_factory.mktemp("data") / "planted")


@pytest.fixture
def task(planted: Dataset) -> Task:
    """A narrow DCN-V2 over the planted rows."""
    return Task.of(planted, DCNv2(width=4), seed=3, device="cpu")


@pytest.fixture
def schema() -> Schema:
    """Fields of very different cardinalities."""
    return Schema.of(user=50, gender=2, item=30, city=7)


@pytest.fixture(params=every_model(), ids=lambda m: type(m).__name__)
def settings(request: pytest.FixtureRequest) -> Model:
    """The settings of every model, one by one."""
    found: Model = request.param
    return found


@pytest.fixture(scope="session")
def movielens_zip(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An archive shaped like MovieLens-1M: same files, same separators, Latin-1 titles, 3,000 ratings."""
    draw = np.random.default_rng(0)
    users = "".join(
        f"{u}::{'FM'[u % 2]}::{(1, 18, 25, 35)[u % 4]}::{u % 21}::{10000 + u // 3}\n" for u in range(1, 121)
    )
    movies = "".join(
        f'{m}::L\'été :: a film, "{m}" ({1950 + m % 50})::{"Comedy|Drama" if m % 3 else "War"}\n' for m in range(1, 81)
    )
    pairs = draw.permutation(120 * 80)[:3_000]
    ratings = "".join(
        f"{p // 80 + 1}::{p % 80 + 1}::{int(np.clip((p // 80) % 5 + draw.integers(0, 3), 1, 5))}::{978300000 + p}\n"
        for p in pairs
    )
    path = tmp_path_factory.mktemp("raw") / "ml-1m.zip"
    with zipfile.ZipFile(path, "w") as archive:
        for name, text in {"users": users, "movies": movies, "ratings": ratings}.items():
            archive.writestr(f"ml-1m/{name}.dat", text.replace(" :: a", ": a").encode("latin-1"))
    return path
