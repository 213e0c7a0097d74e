"""Work in other threads; results come in the order of the items."""

from collections import deque
from collections.abc import Callable, Generator, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Final, TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")
_END: Final = object()


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


def read_ahead(items: Iterable[Item], most: int = 1) -> Generator[Item, None, None]:
    """Yields the items, in order; another thread takes them, at most `most` ahead, while this one works.

    An error is raised at its item's turn. It, an exception in this thread, or closing the iterator ends the thread
    after the item that it takes.
    """
    rest, pool = iter(items), ThreadPoolExecutor(1, "fieldwise")
    ahead: deque[Future[Any]] = deque()
    try:
        ahead.extend(pool.submit(next, rest, _END) for _ in range(most))
        while (item := ahead.popleft().result()) is not _END:
            ahead.append(pool.submit(next, rest, _END))
            yield item
    finally:
        pool.shutdown(cancel_futures=True)
