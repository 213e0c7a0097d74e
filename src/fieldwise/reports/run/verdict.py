"""The verdict on a run: each model beside simple baselines, with intervals, and warnings in plain words."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any, Final

from fieldwise.core.baselines import BaselineRecord
from fieldwise.core.display import Cells
from fieldwise.core.harm import sentence
from fieldwise.core.records import Errors, Metrics, RunRecord, Size
from fieldwise.reports.run.estimate import Estimate, over_seeds

FEW: Final = 100
"""Fewer rows of one label than this in validation or test cannot be relied on."""
TOO_GOOD: Final = 0.999
"""A test AUC above this is more often a leak than a success."""
SUSPICIOUS: Final = 0.95
"""A field that reaches this test AUC by itself may hold the label, as `check` also says."""
ROUNDING: Final = 5e-5
"""Differences below this are not visible in four decimals."""
HEADS: Final = ("model", "test AUC", "log loss", "embedding parameters", "all parameters")


@dataclass(frozen=True)
class Judged:
    """One model of the verdict."""

    name: str
    auc: Estimate
    log_loss: Estimate
    embedding: float | None = None
    """Embedding parameters; None for baselines."""
    total: float | None = None

    def to_json(self) -> dict[str, Any]:
        """Plain values, for a page."""
        sizes = {"embedding": self.embedding, "all": self.total}
        return {"name": self.name, "auc": self.auc.to_json(), "log_loss": self.log_loss.to_json(), **sizes}


@dataclass(frozen=True)
class Change:
    """A compact model minus the full model, on the same test rows."""

    budget: str
    auc: Estimate
    log_loss: Estimate


def judged(records: Sequence[RunRecord], baselines: BaselineRecord | None) -> list[Judged]:
    """The constant and the logistic regression if they were measured, the full model, and one model per budget."""
    found = []
    if baselines is not None:
        constant, logistic = baselines.constant, baselines.logistic
        found = [
            Judged("constant", Estimate(constant.auc), Estimate(constant.log_loss)),
            Judged(
                "logistic regression",
                Estimate(logistic.auc, baselines.auc_error),
                Estimate(logistic.log_loss, baselines.log_loss_error),
            ),
        ]
    groups = by_budget(records)
    first = list({record.seed: record for record in records}.values())
    found.append(_model("full model", first, "full"))
    return found + [_model(budget, group, "compact") for budget, group in groups.items()]


def by_budget(records: Iterable[RunRecord]) -> dict[str, list[RunRecord]]:
    """Records grouped by budget."""
    groups: dict[str, list[RunRecord]] = {}
    for record in records:
        groups.setdefault(record.budget, []).append(record)
    return groups


def change(group: Sequence[RunRecord]) -> Change:
    """The differences of one budget, averaged over its seeds."""
    return Change(
        group[0].budget,
        over_seeds([r.compact_test.auc - r.full_test.auc for r in group], _errors(group, lambda e: e.auc_change)),
        over_seeds(
            [r.compact_test.log_loss - r.full_test.log_loss for r in group], _errors(group, lambda e: e.log_loss_change)
        ),
    )


def verdict_rows(models: Sequence[Judged]) -> Iterable[Cells]:
    """Yields one table row per model."""
    for model in models:
        sizes = ("" if size is None else f"{size:,.0f}" for size in (model.embedding, model.total))
        yield model.name, model.auc.text(), model.log_loss.text(), *sizes


def warnings(records: Sequence[RunRecord], baselines: BaselineRecord | None) -> list[str]:
    """One sentence or two for each reason to doubt the results."""
    models = judged(records, baselines)
    simple = {model.name: model for model in models if model.embedding is None}
    trained = [model for model in models if model.embedding is not None]
    lines = _few(baselines) if baselines else []
    lines += _no_better(trained, simple.get("constant"), simple.get("logistic regression"))
    if any(model.auc.value > TOO_GOOD for model in trained):
        return [*lines, _leak([model for model in trained if model.auc.value > TOO_GOOD], baselines)]
    return [*lines, *_suspicious(baselines), *_undecided(records)]


def harms(records: Sequence[RunRecord]) -> list[str]:
    """One sentence for each field that a pretraining suspected of harm, by seed if there are several."""
    seeds = {record.seed: record for record in records}
    lines = [(seed, sentence(harm)) for seed, record in seeds.items() for harm in record.harms]
    return [f"Seed {seed}: {line}" if len(seeds) > 1 else line for seed, line in lines]


def total(size: Size) -> int:
    """Returns the number of parameters of a model."""
    return size.embedding + size.first_order + size.dense


def _model(name: str, group: Sequence[RunRecord], which: str) -> Judged:
    tests: list[Metrics] = [getattr(record, f"{which}_test") for record in group]
    sizes: list[Size] = [getattr(record, f"{which}_size") for record in group]
    auc_errors = _errors(group, lambda e: float(getattr(e, f"{which}_auc")))
    loss_errors = _errors(group, lambda e: float(getattr(e, f"{which}_log_loss")))
    return Judged(
        name,
        over_seeds([test.auc for test in tests], auc_errors),
        over_seeds([test.log_loss for test in tests], loss_errors),
        fmean(size.embedding for size in sizes),
        fmean(total(size) for size in sizes),
    )


def _errors(group: Sequence[RunRecord], pick: Callable[[Errors], float]) -> list[float | None]:
    return [None if record.errors is None else pick(record.errors) for record in group]


def _few(baselines: BaselineRecord) -> list[str]:
    """Warns of too few rows of the rarer label."""
    lines = []
    for split, use in (("valid", "stop training and choose columns"), ("test", "measure anything")):
        name = {"valid": "validation"}.get(split, split)
        rows, clicks = baselines.rows[split], baselines.clicks[split]
        rarer, what = (clicks, "clicks") if clicks <= rows - clicks else (rows - clicks, "rows without a click")
        if rarer < FEW:
            lines.append(
                f"Only {rarer:,} {what} in the {rows:,} {name} rows: too few to {use}, so the numbers are mostly "
                "chance. Give more rows, or a larger fraction of them to this split."
            )
    return lines


def _no_better(trained: Sequence[Judged], constant: Judged | None, logistic: Judged | None) -> Iterable[str]:
    """Warns of models that are no better than a baseline."""
    poor = [model for model in trained if model.auc.low <= 0.5]
    if poor:
        yield (
            f"Clicks are not ranked better than by a constant, whose AUC is 0.5: {_named(poor, 'auc')}. These fields "
            "may not predict this label, or there are too few rows."
        )
    worse = [model for model in trained if constant and model.log_loss.value - constant.log_loss.value > ROUNDING]
    if worse and constant:
        yield (
            f"Probabilities are worse than a constant, whose log loss is {constant.log_loss.value:.4f}: "
            f"{_named(worse, 'log_loss')}. Do not use them as probabilities."
        )
    beaten = [model for model in trained if logistic and logistic.auc.low > 0.5 and logistic.auc.value > model.auc.high]
    if beaten and logistic:
        yield f"A logistic regression ranks better, with AUC {logistic.auc.value:.4f}: {_named(beaten, 'auc')}."


def _named(models: Sequence[Judged], key: str) -> str:
    """Lists models with one of their metrics."""
    names = (model.name if model.name == "full model" else f"compact at {model.name}" for model in models)
    return ", ".join(f"{name} {getattr(model, key).text()}" for name, model in zip(names, models, strict=True))


def _leak(perfect: Sequence[Judged], baselines: BaselineRecord | None) -> str:
    """Warns of models that are too good, and names the field that is so by itself."""
    best = max(baselines.fields, key=lambda field: field.auc) if baselines and baselines.fields else None
    start = f"Almost perfect: {_named(perfect, 'auc')}. A field may hold the label itself (a leak)"
    if best is None:
        return f"{start}: look for one that is known only after the click."
    reaches = "by itself reaches" if best.auc > TOO_GOOD else "is the best single field and reaches"
    return f"{start}: '{best.name}' {reaches} AUC {best.auc:.4f}. Leave out what is known only after the click."


def _suspicious(baselines: BaselineRecord | None) -> Iterable[str]:
    """Warns of fields that predict the label by themselves, although no model is perfect."""
    found = [field for field in (baselines.fields if baselines else []) if field.auc >= SUSPICIOUS]
    if found:
        listed = ", ".join(f"'{field.name}' {field.auc:.4f}" for field in sorted(found, key=lambda one: -one.auc))
        yield (
            f"Test AUC by one field only: {listed}. It may hold the label itself (a leak). Leave out what is known "
            "only after the click."
        )


def _undecided(records: Sequence[RunRecord]) -> Iterable[str]:
    """Says which compact models the test rows cannot tell from the full model."""
    groups = by_budget(records)
    close = [found for found in map(change, groups.values()) if found.auc.has_zero]
    if close:
        seeds = max(map(len, groups.values()))
        source = "the test rows" if seeds == 1 else f"the test rows and {seeds} seeds"
        listed = ", ".join(f"{found.auc.text('+')} at {found.budget}" for found in close)
        yield (
            f"The AUC difference between compact and full is within its 95% interval: {listed}. So {source} cannot "
            "tell which of the two is better."
        )
