"""Results come in the order of the items, whatever thread is first, and no thread works after the end."""

import threading
import time
from collections.abc import Iterator
from contextlib import closing

import pytest

from fieldwise.core.in_order import in_order, read_ahead


@pytest.mark.parametrize("threads", [1, 3])
def test_results_come_in_order_and_items_are_taken_as_needed(threads: int) -> None:
    taken: list[int] = []

    def items() -> Iterator[int]:
        for item in range(20):
            taken.append(item)
            yield item

    def work(item: int) -> int:
        time.sleep(0.003 * (item % 3 == 0))
        return 10 * item

    for done, result in enumerate(in_order(work, items(), threads)):
        assert result == 10 * done
        assert len(taken) <= done + 2 + threads


@pytest.mark.parametrize("threads", [1, 3])
def test_an_error_comes_at_its_turn_and_ends_the_threads(threads: int) -> None:
    def work(item: int) -> int:
        if item == 4:
            raise ValueError("four")
        return item

    results = in_order(work, range(100), threads)
    assert [next(results) for _ in range(4)] == [0, 1, 2, 3]
    with pytest.raises(ValueError, match="four"):
        next(results)
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("fieldwise")]


def test_closing_ends_the_threads() -> None:
    worked: list[int] = []
    with closing(in_order(worked.append, range(10_000), 2)) as results:
        next(results)
    assert len(worked) < 10
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("fieldwise")]


def test_another_thread_takes_at_most_one_item_ahead() -> None:
    taken: list[tuple[int, str]] = []

    def items() -> Iterator[int]:
        for item in range(20):
            taken.append((item, threading.current_thread().name))
            yield item

    for done, item in enumerate(read_ahead(items())):
        time.sleep(0.002)
        assert item == done
        assert len(taken) <= done + 2
    assert {name.partition("_")[0] for _, name in taken} == {"fieldwise"}


def test_an_error_while_reading_ahead_comes_at_its_turn() -> None:
    def items() -> Iterator[int]:
        yield 0
        yield 1
        raise ValueError("two")

    items_ahead = read_ahead(items())
    assert [next(items_ahead), next(items_ahead)] == [0, 1]
    with pytest.raises(ValueError, match="two"):
        next(items_ahead)
    with closing(read_ahead(range(10_000))) as rest:
        next(rest)
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("fieldwise")]
