"""Runs a function on many items in threads; results come in the order of the items."""

from collections import deque
from collections.abc import Callable, Generator, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")


def in_order(work: Callable[[Item], Result], items: Iterable[Item], threads: int) -> Generator[Result, None, None]:
    """Yields the result of each item, in order; items are taken in this thread, at most `threads` + 1 ahead.

    An error is raised at its item's turn. It, an exception in this thread, or closing the iterator ends the threads
    after the items that they work on.
    """
    if threads == 1:
        yield from map(work, items)
        return
    pool, ahead = ThreadPoolExecutor(threads, "fieldwise"), deque[Future[Result]]()
    try:
        for item in items:
            ahead.append(pool.submit(work, item))
            if len(ahead) > threads:
                yield ahead.popleft().result()
        while ahead:
            yield ahead.popleft().result()
    finally:
        pool.shutdown(cancel_futures=True)
