"""Evolutionary search of widths under a budget: mutation, crossover, repair, selection."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from pydantic import Field

from fieldwise.core.settings import Settings

Genes = tuple[int, ...]
"""One width per field; a tuple, so that stored genes are immutable."""


@dataclass(frozen=True)
class Room:
    """The allowed widths: at least 1 and at most `widths`, or 0 where that is 0, with a total cost within the limit."""

    widths: tuple[int, ...]
    costs: tuple[int, ...]
    """Cost of one column of each field."""
    limit: int
    align: int = 1
    """Widths are multiples of this number, or the field's maximum."""

    def spent(self, genes: Genes) -> int:
        """Total cost of all columns."""
        return sum(width * cost for width, cost in zip(genes, self.costs, strict=True))

    def next(self, field: int, width: int) -> int:
        """The next larger width."""
        return min(self.widths[field], (width // self.align + 1) * self.align)

    def before(self, width: int) -> int:
        """The next smaller width; 0 for the smallest."""
        return max(0, (width - 1) // self.align * self.align)

    def sample(self, draw: np.random.Generator) -> Genes:
        """Random widths, not repaired."""
        sampled = [int(draw.integers(1, width + 1)) if width else 0 for width in self.widths]
        return tuple(self.next(j, width - 1) for j, width in enumerate(sampled))

    def repair(self, genes: Genes, draw: np.random.Generator) -> Genes:
        """Random narrowing until within the limit, then random widening until no further column fits."""
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
        """Random widths, repaired."""
        return self.repair(self.sample(draw), draw)


class Evolution(Settings):
    """Size of the evolution: generations, children and parents."""

    generations: int = Field(30, ge=1)
    """Number of generations, at least 1. Each evaluates its children and breeds from the best so far."""
    mutations: int = Field(10, ge=1)
    """Children per generation by mutation of one parent, at least 1."""
    crossovers: int = Field(10, ge=1)
    """Children per generation by crossover of two parents, at least 1."""
    parents: int = Field(10, ge=1)
    """Parents per generation, at least 1: the best so far."""
    chance: float = Field(0.1, gt=0, le=1)
    """Mutation probability per field, in (0, 1]."""

    def best(self, fitness: Callable[[Genes], float], room: Room, draw: np.random.Generator) -> tuple[Genes, float]:
        """The best genes of all generations and their fitness; each is evaluated once."""
        evaluated: dict[Genes, float] = {}
        children = [room.random(draw) for _ in range(self.mutations + self.crossovers)]
        for _ in range(self.generations):
            evaluated |= {genes: fitness(genes) for genes in dict.fromkeys(children) if genes not in evaluated}
            parents = sorted(evaluated, key=lambda genes: (-evaluated[genes], genes))[: self.parents]
            children = [self.mutate(parents[draw.integers(len(parents))], room, draw) for _ in range(self.mutations)]
            for _ in range(self.crossovers):
                left, right = (parents[draw.integers(len(parents))] for _ in range(2))
                children.append(self.cross(left, right, room, draw))
        winner = min(evaluated, key=lambda genes: (-evaluated[genes], genes))
        return winner, evaluated[winner]

    def mutate(self, genes: Genes, room: Room, draw: np.random.Generator) -> Genes:
        """A copy with some widths sampled again, repaired."""
        sampled = room.sample(draw)
        changed = draw.random(len(genes)) < self.chance
        return room.repair(tuple(n if c else g for g, n, c in zip(genes, sampled, changed, strict=True)), draw)

    def cross(self, left: Genes, right: Genes, room: Room, draw: np.random.Generator) -> Genes:
        """The left parent's first fields and the right parent's others, repaired; each gives at least one field."""
        point = int(draw.integers(1, len(left))) if len(left) > 1 else 1
        return room.repair(left[:point] + right[point:], draw)
