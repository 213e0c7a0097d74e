"""Precisions of matrix products."""

import pytest
import torch

from fieldwise.train.precision import matrix_products
from fieldwise.train.pretraining import Pretrain, pretrain
from fieldwise.train.task import Task
from tests.trainings import numbers


def test_only_a_block_with_tf32_allows_it_and_an_error_ends_it() -> None:
    matmul = torch.backends.cuda.matmul
    assert not matmul.allow_tf32
    with matrix_products("bfloat16"):
        assert not matmul.allow_tf32
    with pytest.raises(ZeroDivisionError), matrix_products("tf32"):
        _ = 1 / 0
    with matrix_products("tf32"):
        assert matmul.allow_tf32
    assert not matmul.allow_tf32


def test_tf32_on_a_cpu_is_float32(task: Task) -> None:
    settings = Pretrain(batch=512, epochs=1, harmful="keep")
    plain, same = (pretrain(task, settings.model_copy(update={"precision": name})) for name in ("float32", "tf32"))
    assert numbers(plain) == numbers(same)
