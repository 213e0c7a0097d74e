"""What processes tell each other, and what happens if one fails."""

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from fieldwise.core.errors import DataError, ElsewhereError, FieldwiseError, RunError, SettingsError
from fieldwise.processes.batch_norm import norms_over_ranks
from fieldwise.processes.join import Place
from fieldwise.processes.ranks import LARGE, Ranks, current
from fieldwise.train.randomness import randomness
from tests.processes.many import on_ranks, started


def test_one_process_is_the_default() -> None:
    ranks, tensor = current(), torch.arange(3.0)
    assert (ranks.rank, ranks.size, ranks.own(range(7))) == (0, 1, range(7))
    ranks.add([tensor])
    assert torch.equal(tensor, torch.arange(3.0))
    assert ranks.rows(tensor) is tensor
    assert ranks.total(tensor) is tensor
    assert ranks.stacked(tensor).shape == (1, 3)
    assert ranks.from_first(lambda: 5) == 5
    ranks.check_same("settings", {"a": 1})


def collectives() -> dict[str, Any]:
    ranks = current()
    small, large = torch.full((3,), 1.0 + ranks.rank), torch.full((LARGE + 1,), 1.0)
    ranks.add([small, large])
    return {
        "small": small.tolist(),
        "large": float(large[-1]),
        "total": float(ranks.total(torch.tensor(2.0))),
        "rows": ranks.rows(torch.full((ranks.rank, 2), float(ranks.rank))).tolist(),
        "first": ranks.from_first(lambda: (os.getpid(), current().size)),
        "own": list(ranks.own(range(0, 50, 10))),
    }


def test_collectives() -> None:
    found = on_ranks(3, collectives)
    for each in found:
        assert each["small"] == [6.0] * 3
        assert each["large"] == 3
        assert each["total"] == 6
        assert each["rows"] == [[1.0, 1.0], [2.0, 2.0], [2.0, 2.0]]
        assert each["first"] == found[0]["first"]
        assert each["first"][1] == 1, "the first process works by itself"
    assert [place for each in found for place in each["own"]] == [0, 10, 20, 30, 40]


def draws() -> list[list[float]]:
    from fieldwise.processes.streams import shared

    found = []
    with randomness(3, "test", 1, own=True):
        for _ in range(2):
            with shared():
                found.append(torch.rand(4).tolist())
            found.append(torch.rand(1 + current().rank).tolist())
    with randomness(3, "test"):
        found.append(torch.rand(4).tolist())
    return found


def test_shared_draws_are_equal_and_own_draws_differ() -> None:
    first, second = on_ranks(2, draws)
    with randomness(3, "test", 1):
        single = torch.rand(8)
    assert first[0] == second[0] == single[:4].tolist(), "the shared stream is that of one process"
    assert first[2] == second[2] == single[4:].tolist()
    assert first[4] == second[4]
    assert first[1] != second[1][:1]


def normalized(kind: str, momentum: float | None) -> list[torch.Tensor]:
    """Outputs, gradients and statistics of a batch normalization, of this process's rows."""
    torch.manual_seed(0)
    norm: nn.Module = {"1d": nn.BatchNorm1d, "2d": nn.BatchNorm2d, "plain": nn.BatchNorm1d}[kind](
        3, momentum=momentum, affine=kind != "plain"
    )
    x = torch.randn(7, 3, *[2, 2] * (kind == "2d")) * 3 + 100
    if kind == "plain":
        norm, x = norm.double(), x.double()
    grad = torch.randn_like(x)
    own = current().own(range(7))
    part = x[own.start : own.stop].clone().requires_grad_()
    with norms_over_ranks(norm):
        for _ in range(2):
            out = norm(part)
        out.backward(grad[own.start : own.stop])
    assert type(norm) in (nn.BatchNorm1d, nn.BatchNorm2d)
    weights = [current().total(w.grad) for w in norm.parameters() if w.grad is not None]
    assert part.grad is not None
    return [current().rows(out.detach()), current().rows(part.grad), *weights, *(b.float() for b in norm.buffers())]


def every_kind() -> list[torch.Tensor]:
    kinds = [("1d", 0.1), ("2d", None), ("plain", 0.3)]
    return [tensor for kind, momentum in kinds for tensor in normalized(kind, momentum)]


def test_batch_norm_uses_the_rows_of_all() -> None:
    expected = every_kind()
    for found in on_ranks(2, every_kind):
        for one, other in zip(found, expected, strict=True):
            torch.testing.assert_close(one, other, rtol=1e-5, atol=2e-5)


def failing(where: int) -> None:
    if current().rank == where:
        raise DataError("no rows")
    current().total(torch.ones(2))


@pytest.mark.parametrize("where", [0, 1])
def test_the_failing_process_reports(where: int) -> None:
    found = on_ranks(2, failing, where)
    assert isinstance(found[where], DataError)
    assert str(found[where]).startswith("no rows")
    assert ("Process 1 of 2" in str(found[where])) == bool(where)
    assert isinstance(found[1 - where], ElsewhereError)


def failing_first() -> None:
    current().from_first(lambda: (_ for _ in ()).throw(DataError("no rows")))


def test_work_of_the_first_fails() -> None:
    first, second = on_ranks(2, failing_first)
    assert isinstance(first, DataError)
    assert isinstance(second, ElsewhereError)


def dying(seconds: float) -> None:
    if current().rank == 1:
        if seconds:
            time.sleep(seconds)
        os._exit(9)
    current().total(torch.ones(2))


def test_a_killed_process_is_noticed() -> None:
    first, second = on_ranks(2, dying, 0.0)
    assert isinstance(first, RunError)
    assert "Run the same command again to resume" in str(first)
    assert "pytorch" not in str(first)
    assert second == "ended"


def test_a_stopped_process_is_given_up() -> None:
    first, _ = on_ranks(2, dying, 2.5, FIELDWISE_TIMEOUT="2")
    assert isinstance(first, RunError)
    assert "does not answer" in str(first)


def waiting(seconds: float) -> int:
    def work() -> int:
        time.sleep(seconds)
        return 4

    return current().from_first(work)


def test_the_first_may_work_longer_than_the_timeout() -> None:
    assert on_ranks(2, waiting, 2.5, FIELDWISE_TIMEOUT="1.5") == [4, 4]


def differing() -> None:
    current().check_same("settings", {"model": {"width": 4 + current().rank}})


def test_other_settings_are_refused() -> None:
    errors = on_ranks(2, differing)
    told = [error for error in errors if isinstance(error, SettingsError)]
    assert len(told) == 1
    assert "Process 1 of 2 has other settings than process 0: model.width" in str(told[0])
    assert sum(isinstance(error, ElsewhereError) for error in errors) == 1


def connect() -> Any:
    from fieldwise.processes.join import joined

    try:
        with joined():
            return None
    except FieldwiseError as error:
        return error


def test_no_network_interface() -> None:
    found = started(2, connect, GLOO_SOCKET_IFNAME="nosuch0", FIELDWISE_TIMEOUT="5")
    (told,) = [str(error) for error in found if not isinstance(error, ElsewhereError)]
    assert "could not connect to the others at 127.0.0.1" in told
    assert "GLOO_SOCKET_IFNAME" in told
    assert "\n" not in told


@pytest.mark.parametrize(
    "change", [{"RANK": "x"}, {"RANK": "2"}, {"WORLD_SIZE": "0"}, {"MASTER_PORT": ""}, {"FIELDWISE_TIMEOUT": "0"}]
)
def test_variables_of_a_launcher_are_checked(change: dict[str, str]) -> None:
    good = {"RANK": "1", "WORLD_SIZE": "2", "MASTER_ADDR": "here", "MASTER_PORT": "1"}
    assert Place.of(good).local == 1
    with pytest.raises(SettingsError, match="torchrun"):
        Place.of({**good, **change})


AFTER = """
import os
import torch
from torch._C._distributed_c10d import TCPStore
from fieldwise.processes.join import joined

store = TCPStore("127.0.0.1", 0, None, True, wait_for_workers=False)
env = {"RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(store.port)}
with joined({**env, "TORCHELASTIC_USE_AGENT_STORE": "True"}):
    weight = torch.ones(2, requires_grad=True)
    weight.sum().backward()
    torch.optim.Adam([weight]).step()
names = [open(f"/proc/self/task/{thread}/comm").read() for thread in os.listdir("/proc/self/task")]
print([name for name in names if "gloo" in name])
"""


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="counts threads as Linux does")
def test_no_thread_of_the_connections_is_left() -> None:
    done = subprocess.run([sys.executable, "-c", AFTER], capture_output=True, text=True, check=True, timeout=100)
    assert done.stdout.strip() == "[]"  # one that needs Python at its end would abort it


def test_a_part_for_every_process() -> None:
    for size in (1, 2, 3, 5):
        parts = []
        for rank in range(size):
            ranks = Ranks()
            ranks.rank, ranks.size = rank, size
            parts.append(list(ranks.own(range(11))))
        assert [place for part in parts for place in part] == list(range(11))
        assert max(map(len, parts)) - min(map(len, parts)) <= 1
