"""Rows with a field that memorizes: `time` has few rows per id, and its label is chance."""

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from fieldwise.core.schema import PADDING, Field, Schema
from fieldwise.data.store import Split
from fieldwise.models.fm import FM
from fieldwise.models.model import Model
from fieldwise.train.pretraining import Pretrain
from fieldwise.train.task import Task

SCHEMA = Schema((Field("tags", 13, length=2), Field("user", 151), Field("time", 1001), Field("kind", 9)))
TIERS = Schema((
    Field("tags", 13, length=2), Field("user:frequent", 21), Field("user:middle", 31), Field("user:rare", 101),
    Field("time:frequent", 5), Field("time:rare", 997), Field("kind", 9),
))  # fmt: skip
"""The same fields, two of them in tiers."""
SETTINGS = Pretrain(batch=128, learning_rate=0.01, epochs=6, patience=2)
MODEL = FM(width=4)


def columns(count: int, seed: int) -> dict[str, NDArray[np.int64]]:
    """Raw values and labels; the label depends on the user, the first tag and the kind."""
    draw, truth = np.random.default_rng(seed), np.random.default_rng(0)
    found = {name: draw.integers(1, ids, count) for name, ids in (("user", 151), ("time", 1001), ("kind", 9))}
    found |= {"tag": draw.integers(1, 13, count), "other": draw.integers(1, 13, count)}
    effects = {name: truth.normal(size=ids) for name, ids in (("user", 151), ("kind", 9), ("tag", 13))}
    score = sum(effect[found[name]] for name, effect in effects.items())
    return found | {"label": (draw.random(count) < 1 / (1 + np.exp(-score))).astype(np.int64)}


def split(count: int, seed: int, unseen: float = 0.0) -> Split:
    """Encoded rows, with an unknown user in a fraction of them and a second tag in half of them."""
    found, draw = columns(count, seed), np.random.default_rng(seed)
    user = np.where(draw.random(count) < unseen, 0, found["user"])
    other = np.where(draw.random(count) < 0.5, PADDING, found["other"])
    ids = np.stack([found["tag"], other, user, found["time"], found["kind"]], 1)
    return Split(ids.astype(np.int32), found["label"].astype(np.uint8))


def memorized_task(model: Model = MODEL, seed: int = 0) -> Task:
    """A task in which `time` is harmful and `user`, unknown in some validation rows, useful."""
    return Task(SCHEMA, split(3_000, 1), split(3_000, 2, unseen=0.15), model, seed, "cpu")


def tiered(split: Split) -> Split:
    """The same rows with ids in tiers."""
    ids, found = np.asarray(split.ids), []
    for field in TIERS.fields:
        column, _, tier = field.name.partition(":")
        start = {"tags": 0, "user": 2, "time": 3, "kind": 4}[column]
        own = ids[:, start : start + field.length]
        if tier:
            before = {"frequent": 0, "middle": 20, "rare": 50 if column == "user" else 4}[tier]
            own = np.where((own > before) & (own < before + field.cardinality), own - before, 0)
        found.append(own)
    return Split(np.concatenate(found, 1).astype(np.int32), split.labels)


def tiered_task(model: Model = MODEL, seed: int = 0) -> Task:
    """The same task with tiers."""
    plain = memorized_task(model, seed)
    return replace(plain, schema=TIERS, train_rows=tiered(plain.train_rows), valid_rows=tiered(plain.valid_rows))
