"""Distillation: the compact model learns from what the full model predicts, not from clicks alone."""

from dataclasses import replace

import numpy as np
import torch

from fieldwise.core.errors import TrainingError
from fieldwise.data.store import Split
from fieldwise.train.evaluate import logits_of
from fieldwise.train.task import Task


def distilled(task: Task, share: float) -> Task:
    """The task with training labels of which `share` are the starting model's predictions, the rest clicks.

    The loss is linear in the labels, so this is exactly the weighted sum of both losses, at the price of one pass.
    """
    if not share:
        return task
    if task.start is None:
        raise TrainingError(
            f"[retrain] distil = {share} needs the full model to learn from, and this task has none. "
            "Give it the pretrained model, task.starting_from(full.model), or set distil = 0."
        )
    logits, clicks = logits_of(task.starting_model(), task.train)
    labels = torch.lerp(clicks, torch.sigmoid(logits.float()), share).cpu().numpy().astype(np.float32)
    return replace(task, train_rows=Split(task.train_rows.ids, labels))
