"""TorchRec moves rows between processes: its row-wise sharded embedding collection, with lookups of the library.

TorchRec sends ids to the process that holds them, their rows back, and gradients there. Rows are read and updated by
the library's own optimizers, which TorchRec does not have on CPUs. TorchRec's kernels need widths that are multiples of
4; these lookups take any, so nothing is padded.
"""

import logging
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

import torch
from torch import Tensor, nn

from fieldwise.core.errors import SettingsError
from fieldwise.processes.ranks import Ranks
from fieldwise.tables.shards import block

Lookup = Callable[[Tensor], Tensor]
"""Rows (n, width) of this process at its own row numbers (n,)."""
INSTALL: Final = (
    "pip install 'fieldwise[scale]' && pip install --no-deps torchrec==1.8.0 fbgemm-gpu-cpu==1.8.0"  # for torch 2.13
)


def check_installed() -> None:
    """Refuse to shard tables without TorchRec."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of its dependencies, about their own
            import torchrec.distributed.embedding  # noqa: F401
    except (ImportError, OSError, AttributeError, RuntimeError) as error:
        why = " ".join(str(error).split())[:150]
        raise SettingsError(
            f"[run] tables = 'sharded' needs TorchRec ({why}). Run: {INSTALL}. Or choose tables = 'replicated'."
        ) from error


class TorchRecRows:
    """Reads rows of a stacked table that several processes hold."""

    def __init__(self, cardinalities: Sequence[int], width: int, ranks: Ranks) -> None:
        check_installed()
        self._ranks, self._width = ranks, width
        self._names = [f"field_{place}" for place in range(len(cardinalities))]
        self._lookup = _OwnLookup([len(block(count, ranks)) for count in cardinalities])
        self._collection = _collection(self._names, cardinalities, width, ranks, self._lookup)

    def __call__(self, ids: Tensor, counts: Tensor, lookup: Lookup) -> Tensor:
        """Rows (n, width) at the ids (n,) of all fields, `counts` of each; they have a gradient if `lookup` has."""
        from torchrec import KeyedJaggedTensor

        self._lookup.read = lookup
        with self._ranks.talking("TorchRec"):
            features = KeyedJaggedTensor(keys=self._names, values=ids, lengths=counts.int())
            found = self._collection(features)
            return torch.cat([found[name].values() for name in self._names])


class _OwnLookup(nn.Module):
    """What TorchRec calls in place of a kernel of its own."""

    read: Lookup

    def __init__(self, sizes: Sequence[int]) -> None:
        super().__init__()
        self._starts = torch.tensor([0, *sizes[:-1]]).cumsum(0)

    def named_parameters_by_table(self) -> Iterator[tuple[str, nn.Parameter]]:
        """None: the model holds the tables."""
        return iter(())

    def forward(self, features: Any) -> Tensor:
        """Rows of the ids that all processes asked for, field by field; the ids count from this process's first."""
        counts = torch.tensor(features.length_per_key())
        return self.read(features.values().long() + self._starts.repeat_interleave(counts))


def _collection(
    names: Sequence[str], cardinalities: Sequence[int], width: int, ranks: Ranks, lookup: _OwnLookup
) -> nn.Module:
    """TorchRec's sharded collection of tables, split by rows over all processes."""
    import torch.distributed as dist
    from torchrec import EmbeddingCollection, EmbeddingConfig
    from torchrec.distributed.comm_ops import set_gradient_division
    from torchrec.distributed.types import EnumerableShardingSpec, ParameterSharding, ShardingEnv, ShardMetadata

    def plan(count: int) -> Any:
        each = [(rank, block(count, ranks, rank)) for rank in range(ranks.size)]
        shards = [ShardMetadata([own.start, 0], [len(own), width], f"rank:{rank}/cpu") for rank, own in each]
        spec = EnumerableShardingSpec(shards)
        return ParameterSharding("row_wise", "customized_kernel", list(range(ranks.size)), spec)

    set_gradient_division(False)  # each process has its part of the loss: gradients are summed, not averaged
    logging.getLogger("torch.fx._symbolic_trace").setLevel(logging.ERROR)  # warns of a call inside TorchRec
    tables = [
        EmbeddingConfig(name=name, embedding_dim=width, num_embeddings=count, feature_names=[name])
        for name, count in zip(names, cardinalities, strict=True)
    ]
    plain = EmbeddingCollection(tables=tables, device=torch.device("meta"))
    plans = {name: plan(count) for name, count in zip(names, cardinalities, strict=True)}
    env = ShardingEnv.from_process_group(dist.group.WORLD)
    return _class()(lookup, plain, plans, env, device=torch.device("cpu"))


def _class() -> type[nn.Module]:
    """The collection with our lookup: what TorchRec's `customized_kernel` leaves to a subclass."""
    from torchrec.distributed.embedding import ShardedEmbeddingCollection

    class OwnRows(ShardedEmbeddingCollection):  # type: ignore[misc]
        """A sharded collection whose rows are not its own."""

        def __init__(self, lookup: _OwnLookup, *given: Any, **named: Any) -> None:
            object.__setattr__(self, "_own", lookup)  # before nn.Module can take it
            super().__init__(*given, **named)

        def _create_lookups(self) -> None:
            self._lookups.append(self._own)

        def reset_parameters(self) -> None:
            """Nothing: it has none."""

    return OwnRows
