"""Evolution of widths under a budget: mutate, cross, repair, keep the fittest."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from pydantic import Field

from fieldwise.core.settings import Settings

Genes = tuple[int, ...]
"""A width for each field; a tuple, so that nothing stored can be changed in place."""


@dataclass(frozen=True)
class Room:
    """What widths may be: at least 1 and at most `widths`, all together within the limit."""

    widths: tuple[int, ...]
    costs: tuple[int, ...]
    """Of one column of each field."""
    limit: int
    align: int = 1
    """Widths are multiples of it, or the field's most."""

    def spent(self, genes: Genes) -> int:
        """The cost of all columns."""
        return sum(width * cost for width, cost in zip(genes, self.costs, strict=True))

    def next(self, field: int, width: int) -> int:
        """The next larger width."""
        return min(self.widths[field], (width // self.align + 1) * self.align)

    def before(self, width: int) -> int:
        """The next smaller width; 0 for the smallest."""
        return (width - 1) // self.align * self.align

    def anew(self, draw: np.random.Generator) -> Genes:
        """Widths by lot, not repaired."""
        lots = [int(draw.integers(1, width + 1)) for width in self.widths]
        return tuple(self.next(j, lot - 1) for j, lot in enumerate(lots))

    def repair(self, genes: Genes, draw: np.random.Generator) -> Genes:
        """The nearest by lot that is within the limit, with no room left for a further column."""
        found = list(genes)
        while self.spent(tuple(found)) > self.limit:
            field = draw.choice([j for j, width in enumerate(found) if self.before(width)])
            found[field] = self.before(found[field])
        while True:
            left = self.limit - self.spent(tuple(found))
            steps = [self.next(j, width) - width for j, width in enumerate(found)]
            free = [j for j, step in enumerate(steps) if step and step * self.costs[j] <= left]
            if not free:
                return tuple(found)
            field = draw.choice(free)
            found[field] += steps[field]

    def random(self, draw: np.random.Generator) -> Genes:
        """Widths by lot, repaired."""
        return self.repair(self.anew(draw), draw)


class Evolution(Settings):
    """How many generations of how many children."""

    generations: int = Field(30, ge=1)
    """Each judges its children and breeds from the fittest of all so far."""
    mutations: int = Field(10, ge=1)
    """Children that are changed copies of a parent."""
    crossovers: int = Field(10, ge=1)
    """Children of two parents."""
    parents: int = Field(10, ge=1)
    """The fittest so many breed."""
    chance: float = Field(0.1, gt=0, le=1)
    """That a mutation draws a field's width anew."""

    def best(self, fitness: Callable[[Genes], float], room: Room, draw: np.random.Generator) -> tuple[Genes, float]:
        """The fittest ever judged; each is judged once."""
        judged: dict[Genes, float] = {}
        children = [room.random(draw) for _ in range(self.mutations + self.crossovers)]
        for _ in range(self.generations):
            judged |= {genes: fitness(genes) for genes in dict.fromkeys(children) if genes not in judged}
            parents = sorted(judged, key=lambda genes: (-judged[genes], genes))[: self.parents]
            children = [self.mutate(parents[draw.integers(len(parents))], room, draw) for _ in range(self.mutations)]
            for _ in range(self.crossovers):
                left, right = (parents[draw.integers(len(parents))] for _ in range(2))
                children.append(self.cross(left, right, room, draw))
        winner = min(judged, key=lambda genes: (-judged[genes], genes))
        return winner, judged[winner]

    def mutate(self, genes: Genes, room: Room, draw: np.random.Generator) -> Genes:
        """A copy with some widths drawn anew, repaired."""
        anew = room.anew(draw)
        changed = draw.random(len(genes)) < self.chance
        return room.repair(tuple(n if c else g for g, n, c in zip(genes, anew, changed, strict=True)), draw)

    def cross(self, left: Genes, right: Genes, room: Room, draw: np.random.Generator) -> Genes:
        """The left parent's first fields and the right one's others, repaired; each gives at least one field."""
        point = int(draw.integers(1, len(left))) if len(left) > 1 else 1
        return room.repair(left[:point] + right[point:], draw)
