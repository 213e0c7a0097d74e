"""The stages of one seed, each from files to files. The full model is loaded once and tested once."""

import platform
from copy import deepcopy
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import save_file
from torch import Tensor

from fieldwise.core.budget import Budget
from fieldwise.core.files import replacing, write_json
from fieldwise.core.mask import Mask
from fieldwise.core.records import Metrics, RunRecord, StageRecord, StoredResult
from fieldwise.core.registry import name_of
from fieldwise.core.settings import Values
from fieldwise.core.store import FLOAT32, KINDS, Store
from fieldwise.core.version import __version__
from fieldwise.data.store import Dataset
from fieldwise.exports.folder import export, load_trained
from fieldwise.exports.info import ModelInfo, folder_bytes
from fieldwise.models import MODELS
from fieldwise.models.check import check_model
from fieldwise.models.model import CTRModel, OwnModel
from fieldwise.models.spread import gathered, spread
from fieldwise.models.stored import StoredModel, store_of, stored, stored_bytes
from fieldwise.pipeline.folder import Job, begin, end, need, read, read_record
from fieldwise.processes.ranks import current
from fieldwise.searches import SEARCHES
from fieldwise.searches.search import SearchResult
from fieldwise.searches.search import search as search_columns
from fieldwise.searches.total import typed_budget
from fieldwise.train.evaluate import evaluate, metrics, predictions
from fieldwise.train.memory import forget_peak, peak_memory
from fieldwise.train.pretraining import pretrain as pretrain_model
from fieldwise.train.retraining import retrain as retrain_model
from fieldwise.train.retraining import stored_for
from fieldwise.train.task import Task
from fieldwise.train.trained import Trained
from fieldwise.train.uncertainty import errors


class SeedRun:
    """One seed of a run. Complete stages are skipped, and the full model passes from stage to stage."""

    def __init__(self, job: Job, data: Dataset, seed: int) -> None:
        self._job, self._data, self._seed = job, data, seed

    def pretrain(self) -> None:
        """Trains the full model, unless it is complete."""
        job = self._job
        folder, values = job.stage("pretrain", self._data, self._seed, job.settings.run.budgets[0])
        if self._begin(folder, values, f"pretrain, seed {self._seed}"):
            if name_of(job.settings.model, MODELS) not in MODELS:  # a user's model, which no test covers
                check_model(job.settings.model, self._data.schema)
            forget_peak()
            trained = pretrain_model(self._task, job.settings.pretrain, folder / "checkpoint", job.watcher)
            whole = replace(trained, model=gathered(trained.model))
            current().from_first(lambda: _write_pretrained(whole, folder))

    def search(self, budget: Budget) -> None:
        """Searches one budget from the full model, unless it is complete."""
        job = self._job
        folder, values = job.stage("search", self._data, self._seed, budget)
        if self._begin(folder, values, f"search {budget}, seed {self._seed}"):
            forget_peak()
            result = search_columns(self._start, job.settings.search, budget, folder / "checkpoint", job.watcher)
            whole = replace(result, model=gathered(result.model))
            current().from_first(lambda: _write_searched(whole, folder))

    def retrain(self, budget: Budget) -> None:
        """Retrains one searched model and evaluates it on the test rows, unless it is complete."""
        job = self._job
        folder, values = job.stage("retrain", self._data, self._seed, budget)
        searched = job.seed_folder(self._seed) / "search" / budget.slug
        if self._begin(folder, values, f"retrain {budget}, seed {self._seed}"):
            forget_peak()
            start = spread(lambda: self._searched(searched, budget))
            mask = current().from_first(lambda: Mask.from_json(read(searched / "mask.json")))
            typed = typed_budget(job.settings.model, self._data.schema, budget)
            settings = stored_for(job.settings.retrain, typed, mask)
            trained = retrain_model(self._start, start, settings, folder / "checkpoint", job.watcher)
            tested = self._tested(trained.model)
            whole = replace(trained, model=gathered(trained.model))
            current().from_first(lambda: self._write_retrained(budget, whole, tested, folder))

    def _begin(self, folder: Path, values: Values, title: str) -> bool:
        """Whether a stage is not complete; the first process begins it."""
        return current().from_first(lambda: begin(self._job.watcher, folder, values, title))

    def _searched(self, folder: Path, budget: Budget) -> CTRModel:
        need(folder, f"the search of {budget}, seed {self._seed}", "search")
        return load_trained(folder, type(self._job.settings.model))

    def _write_retrained(
        self, budget: Budget, trained: Trained[CTRModel | StoredModel], tested: "_Tested", folder: Path
    ) -> None:
        home = self._job.seed_folder(self._seed)
        mask = Mask.from_json(read(home / "search" / budget.slug / "mask.json"))
        export(trained.model, home / "compact" / budget.slug, self._data.encoder, mask)
        stage = _stage_record(trained)
        write_json(folder / "history.json", stage.to_json())
        end(folder, self._record(budget, mask, trained.model, stage, tested))

    @property
    def _task(self) -> Task:
        return Task.of(self._data, self._job.settings.model, self._seed, self._job.settings.run.device)

    @cached_property
    def _start(self) -> Task:
        """The task from the full model on."""
        full = self._full  # refuses a pretraining that is not complete
        path = self._job.pretrain_folder(self._seed) / "record.json"
        record = current().from_first(lambda: read_record(StageRecord, path))
        return self._task.starting_from(Trained(full, record.history))

    @cached_property
    def _full(self) -> CTRModel:
        """The full model as its folder holds it, so that a resumed run begins from the same weights."""
        return spread(self._pretrained)

    def _pretrained(self) -> CTRModel:
        folder = self._job.pretrain_folder(self._seed)
        need(folder, f"the pretraining of seed {self._seed}", "pretrain")
        return load_trained(folder, type(self._job.settings.model))

    @cached_property
    def _full_tested(self) -> tuple[Metrics, Tensor]:
        """Validation metrics of the full model, and its logits of the test rows."""
        task, full = self._task, self._full
        if task.torch_device.type != "cpu":
            full = deepcopy(full).to(task.torch_device)
        return evaluate(full, task.valid), predictions(full, self._data.test)[0]

    @cached_property
    def _full_stored(self) -> dict[str, StoredResult]:
        """The full model in each store but float32, without training; none if tables are split over processes."""
        if not isinstance(self._job.settings.model, OwnModel) or self._job.settings.run.split_from is not None:
            return {}
        full = deepcopy(self._full).to(self._task.torch_device)
        each = {kind: stored(full, Store(kind)) for kind in KINDS if kind != FLOAT32.kind}
        return {
            kind: StoredResult(bytes=stored_bytes(model), test=evaluate(model, self._data.test))
            for kind, model in each.items()
        }

    def _tested(self, small: CTRModel | StoredModel) -> "_Tested":
        """What is measured of both models; only here are the test rows read."""
        full_valid, full_logits = self._full_tested
        logits, labels = predictions(small, self._data.test)
        return _Tested(full_valid, full_logits, self._full_stored, evaluate(small, self._task.valid), logits, labels)

    def _record(
        self, budget: Budget, mask: Mask, small: CTRModel | StoredModel, last: StageRecord, tested: "_Tested"
    ) -> RunRecord:
        """One line of the results table."""
        settings, data, task = self._job.settings, self._data, self._task
        before = read_record(StageRecord, self._job.pretrain_folder(self._seed) / "record.json")
        searched = self._job.seed_folder(self._seed) / "search" / budget.slug
        search = read_record(StageRecord, searched / "record.json")
        assert search.summary is not None
        compact = self._job.seed_folder(self._seed) / "compact" / budget.slug
        return RunRecord(
            data=data.fingerprint,
            source=data.title,
            model=name_of(settings.model, MODELS),
            search=name_of(settings.search, SEARCHES),
            budget=str(budget),
            seed=self._seed,
            fields=list(mask.full.schema.names),
            cardinalities=list(mask.full.schema.cardinalities),
            widths_before=list(mask.full.widths),
            widths_after=list(mask.widths),
            full_size=self._full.size(),
            compact_size=small.size(),
            full_valid=tested.full_valid,
            full_test=metrics(tested.full_logits, tested.labels),
            compact_valid=tested.valid,
            compact_test=metrics(tested.logits, tested.labels),
            errors=errors(tested.full_logits, tested.logits, tested.labels),
            summary=search.summary,
            seconds={"pretrain": before.seconds, "search": search.seconds, "retrain": last.seconds},
            peak_memory=max(before.peak_memory, search.peak_memory, last.peak_memory),
            device=str(task.torch_device),
            settings=settings.values(),
            versions={
                "fieldwise": __version__,
                "python": platform.python_version(),
                "torch": torch.__version__,
                "numpy": np.__version__,
            },
            store=store_of(small).label,
            full_bytes=stored_bytes(self._full),
            compact_bytes=folder_bytes(ModelInfo.read(compact), compact),
            full_stored=tested.full_stored,
            harms=before.harms,
        )


@dataclass(frozen=True)
class _Tested:
    """Measurements of the full and the compact model: validation metrics, and logits of the test rows."""

    full_valid: Metrics
    full_logits: Tensor
    full_stored: dict[str, StoredResult]
    valid: Metrics
    logits: Tensor
    labels: Tensor


def _write_pretrained(trained: Trained[CTRModel], folder: Path) -> None:
    export(trained.model, folder)
    end(folder, _stage_record(trained))


def _write_searched(result: SearchResult, folder: Path) -> None:
    write_json(folder / "mask.json", result.mask.to_json())
    export(result.model, folder, mask=result.mask)
    _write_traces(result, folder)
    record = StageRecord(
        history=list(result.history),
        seconds=result.seconds,
        peak_memory=peak_memory(),
        summary=result.summary,
    )
    end(folder, record)


def _stage_record(trained: Trained[CTRModel | StoredModel]) -> StageRecord:
    return StageRecord(history=trained.history, seconds=trained.seconds, peak_memory=peak_memory(), harms=trained.harms)


def _write_traces(result: SearchResult, folder: Path) -> None:
    for place, trace in enumerate(result.traces):
        with replacing(folder / f"trace-{place}.safetensors") as work:
            about = {"limit": str(trace.limit), "every": str(trace.every), "store": result.budget.store}
            save_file(trace.tensors(), work, metadata=about)
