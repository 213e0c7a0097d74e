"""Small tasks and commands for several processes."""

import os
from dataclasses import replace
from pathlib import Path

from fieldwise.data.store import Dataset, Split
from fieldwise.models.model import Model
from fieldwise.searches.search import SearchResult
from fieldwise.train.evaluate import evaluate
from fieldwise.train.task import Task
from tests.command_line import FAST, cli

RUN = ["--budget", "8", "--model", "fm", *FAST, "--set", "data.rows=1500", "--set", "pretrain.harmful=keep"]


def in_place(words: list[list[str]]) -> tuple[int, str, str]:
    """A command of this process, by its rank."""
    done = cli(*words[int(os.environ["RANK"]) % len(words)])
    return done.returncode, done.stdout, done.stderr


def files(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*")}


def of_result(result: SearchResult, task: Task) -> tuple[tuple[int, ...], float, float]:
    """Widths, and validation AUCs of the searched weights and of the model that retraining starts from."""
    return result.mask.widths, result.summary.selected_auc, evaluate(result.model, task.valid).auc


def task_of(folder: Path, model: Model, rows: int = 901) -> Task:
    """A task over the first rows of a dataset."""
    task = Task.of(Dataset.open(folder), model, seed=3, device="cpu")
    train, valid = (Split(split.ids[:rows], split.labels[:rows]) for split in (task.train_rows, task.valid_rows))
    return replace(task, train_rows=train, valid_rows=valid)
