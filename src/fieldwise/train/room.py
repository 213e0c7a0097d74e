"""Check that a model and its optimizer fit into memory, before anything is built."""

import math
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

import torch
from torch import nn
from torch.nn.modules.module import register_module_parameter_registration_hook

from fieldwise.core.errors import SettingsError
from fieldwise.core.schema import Schema
from fieldwise.models.model import Model, OwnModel
from fieldwise.processes.join import processes_here
from fieldwise.train.plan import Training

NUMBER: Final = 4
"""Bytes of a float32."""
COPIES: Final = {"adam": 3, "dense-adam": 4, "rowwise-adagrad": 1}
"""Minimum copies of a table: weights, Adam's two moments, and the gradient if it is dense."""
DENSE: Final = 4
"""Minimum copies of all other weights."""
_MEMORY: Final = Path("/proc/meminfo")
_GROUP: Final = Path("/proc/self/cgroup")
_GROUPS: Final = Path("/sys/fs/cgroup")


class _TooMuchError(Exception):
    """More weights than fit into memory."""


def check_room(model: Model, schema: Schema, training: Training, device: torch.device, split: bool = False) -> None:
    """Refuse a full model whose weights and optimizer state cannot fit; `split`: over the processes on this machine."""
    there = available(device)
    if there is None:
        return
    if device.type == "cpu":
        there //= processes_here()  # each has layers of its own, and tables unless they are split
    tables = _tables(model, schema)
    needs = tables * NUMBER * COPIES[training.optimizer] // (processes_here() if split else 1)
    more = ""
    if needs <= there:
        dense = _dense(model, schema, tables, (there - needs) // (NUMBER * DENSE))
        needs += dense * NUMBER * DENSE
        more = f" and more than {dense:,} in its layers"
    if needs > there:
        raise SettingsError(
            f"[model] {tables:,} numbers in tables{more} take at least {_amount(needs)} to train, {_amount(there)} of "
            f"memory are available on {device.type}. Lower {_width(model)} or the layers' sizes, or raise min_count, "
            "so that fields have fewer ids."
        )


def _tables(model: Model, schema: Schema) -> int:
    """Numbers in the tables of a model of the library; a factory's are counted with its layers."""
    if not isinstance(model, OwnModel):
        return 0
    return model.layout(schema).params + (sum(schema.cardinalities) if model.has_first_order() else 0)


def _width(model: Model) -> str:
    return f"model.width ({model.width})" if isinstance(model, OwnModel) else "the widths of the factory's tables"


def _dense(model: Model, schema: Schema, tables: int, most: int) -> int:
    """Number of weights outside the tables, counted without allocating them; counting stops above `most`.

    0 if it is unknown: a user's base model may not build on the meta device.
    """
    found = 0

    def count(_module: nn.Module, _name: str, weight: nn.Parameter | None) -> None:
        nonlocal found
        found += 0 if weight is None else weight.numel()
        if found - tables > most:
            raise _TooMuchError

    hook = register_module_parameter_registration_hook(count)
    try:
        with torch.random.fork_rng(devices=[]), torch.device("meta"):
            model.weights(schema)
    except _TooMuchError:
        pass
    except (RuntimeError, TypeError, OverflowError) as error:
        if "overflow" in str(error).lower():  # more than 2**63 numbers in one weight
            return max(most, 2**63 // NUMBER)
        return 0
    except Exception:
        return 0
    finally:
        hook.remove()
    return max(0, found - tables)


def available(device: torch.device) -> int | None:
    """Bytes that this process can still allocate; None if unknown."""
    if device.type == "cuda":
        return int(torch.cuda.mem_get_info(device)[0])
    return min([*_machine(), *_groups(), *_process()], default=None)


def _process() -> Iterator[int]:
    """The limit of this process's address space, where it has one."""
    try:
        import resource
    except ImportError:  # on Windows
        return
    with suppress(OSError, ValueError):
        limit, _ = resource.getrlimit(resource.RLIMIT_AS)
        if limit != resource.RLIM_INFINITY:
            yield limit


def _machine() -> Iterator[int]:
    """Available memory of the machine including swap, on Linux."""
    with suppress(OSError, ValueError, KeyError):
        lines = (line.split() for line in _MEMORY.read_text(encoding="ascii").splitlines())
        found = {words[0].rstrip(":"): int(words[1]) * 1024 for words in lines}
        yield found["MemAvailable"] + found["SwapFree"]


def _groups() -> Iterator[int]:
    """Memory limits of the process's control groups (v2 or v1), which containers use."""
    with suppress(OSError):
        for line in _GROUP.read_text(encoding="utf-8").splitlines():
            kinds, path = line.split(":", 2)[1:]
            if kinds not in ("", "memory"):
                continue
            home = _GROUPS / kinds / path.strip("/")
            for folder in (home, *home.parents):
                if _GROUPS not in (folder, *folder.parents):
                    break
                for name in ("memory.max", "memory.limit_in_bytes"):
                    with suppress(OSError, ValueError):  # "max" means no limit
                        yield int((folder / name).read_text(encoding="ascii"))


def _amount(size: int) -> str:
    power = min(6, int(math.log2(max(size, 1)) // 10))
    return f"{size / 2 ** (10 * power):,.1f} {('B', 'KiB', 'MiB', 'GiB', 'TiB', 'PiB', 'EiB')[power]}"
