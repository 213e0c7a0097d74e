"""The precision of a training's matrix products."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal

import torch

Precision = Literal["float32", "tf32", "bfloat16"]
"""tf32: float32 with inputs rounded to 10 bits on a GPU; on a CPU the same as float32."""


@contextmanager
def matrix_products(precision: Precision) -> Iterator[None]:
    """A block in which float32 products of a GPU may use TF32 if the precision is that."""
    if precision != "tf32":
        yield
        return
    matmul = torch.backends.cuda.matmul
    before, matmul.allow_tf32 = matmul.allow_tf32, True
    try:
        yield
    finally:
        matmul.allow_tf32 = before
