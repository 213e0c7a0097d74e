"""Distillation: the compact model learns from the full model's predictions as well as from clicks."""

from dataclasses import replace

import numpy as np
import torch

from fieldwise.core.errors import TrainingError
from fieldwise.data.store import Split
from fieldwise.train.evaluate import logits_of
from fieldwise.train.task import Task


def distilled(task: Task, weight: float) -> Task:
    """A copy of the task with labels (1 - weight) * clicks + weight * predictions of the starting model.

    The loss is linear in the labels, so this is exactly the weighted sum of both losses, at the cost of one pass over
    the training rows.
    """
    if not weight:
        return task
    if task.start is None:
        raise TrainingError(
            f"[retrain] distil = {weight} needs the full model's predictions, and this task has no starting model. "
            "Allowed: a task with a starting model, or distil = 0. Pass task.starting_from(fw.pretrain(task)) "
            "or Retrain(distil=0)."
        )
    logits, clicks = logits_of(task.starting_model(), task.train)
    labels = torch.lerp(clicks, torch.sigmoid(logits.float()), weight).cpu().numpy().astype(np.float32)
    return replace(task, train_rows=Split(task.train_rows.ids, labels))
