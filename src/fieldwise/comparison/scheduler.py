"""Schedules the units of a comparison: one after another here, in parallel processes, or on a cluster."""

from collections.abc import Callable, Generator, Sequence
from typing import TYPE_CHECKING

from fieldwise.comparison.cells import Unit, Work
from fieldwise.comparison.crew import Outcome, in_time, orphan
from fieldwise.comparison.pool import Pool, one_thread_each

if TYPE_CHECKING:
    from fieldwise.comparison.cluster.client import Cluster


def outcomes(
    work: Work,
    units: Sequence[Unit],
    jobs: int,
    limit: float | None,
    cluster: "Cluster | None" = None,
    say: Callable[[str], None] = lambda _: None,
) -> Generator[Outcome, None, None]:
    """Runs units in order, and yields each as it ends; none starts after `limit` (`time.monotonic`).

    On a cluster, `say` receives a line for each worker that cannot be used.
    """
    if cluster is not None:
        from fieldwise.comparison.cluster.crew import ClusterCrew

        yield from ClusterCrew(work, units, cluster, say).outcomes(limit)
        return
    if jobs > 1:
        with one_thread_each():
            yield from Pool(work, units, jobs).outcomes(limit)
        return
    lost: set[tuple[str, int]] = set()
    for unit in units:
        if not in_time(limit):
            return
        error = orphan(work, unit) if (unit.model, unit.seed) in lost else work.do(unit)
        if error and unit.method is None:
            lost.add((unit.model, unit.seed))
        yield unit, error
