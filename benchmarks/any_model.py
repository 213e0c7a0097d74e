"""Train, compact, compare and export public models, also with Torch-Pruning: the matrix of docs/any-model.md.

    python benchmarks/any_model.py --zoo FuxiCTR/model_zoo --out benchmarks/results/any_model.json
        --page docs/any-model.md

The command needs the libraries (see CONTRIBUTING.md). It replaces the file, and writes the page's table from it. With
`--libraries` or `--models` it measures only those, and their rows replace the rows in the file; with an empty
`--libraries` it measures nothing and writes only the page.
"""

import argparse
import json
import logging
import os
import resource
import signal
import sys
import time
import warnings
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
import zoo
from torch import nn
from torch.nn import functional

import fieldwise as fw
from fieldwise.core.errors import FieldwiseError
from fieldwise.core.mask import Mask
from fieldwise.pruning.example import Example, evaluating, floats
from fieldwise.pruning.folding import exported, fold

STEPS = 30
PATIENCE = 60
"""Limit for Torch-Pruning in seconds of CPU time, which other load on the machine does not change."""
BUDGET = "25%"
RATES = {("deepctr-torch", "AFN"): 0.0002}
"""Adam's learning rate for models where 0.02 is too high: the logits of the masked AFN reach hundreds, and every
probability is 0."""
PACKAGES = {"by hand": "torch"}
BEGIN, END = "<!-- matrix: written by benchmarks/any_model.py -->", "<!-- end of the matrix -->"


def run(model: nn.Module, args: tuple[Any, ...]) -> torch.Tensor:
    """Return the logits of a model in one vector, read before its last sigmoid."""
    with torch.no_grad():
        return logits(Example(args).compared(model))


def logits(given: Any) -> torch.Tensor:
    """Return all outputs of a model in one vector, with probabilities converted to logits."""
    out = torch.cat([leaf.detach().double().flatten() for leaf in floats(given, "model")])
    return torch.logit(out) if bool(((out > 0) & (out < 1)).all()) else out


def gap(got: torch.Tensor, wanted: torch.Tensor) -> float:
    """Return the largest difference, relative to the largest logit."""
    return float((got - wanted).abs().max() / wanted.abs().max())


def loss_of(model: nn.Module, args: tuple[Any, ...], labels: torch.Tensor) -> torch.Tensor:
    """Return the binary cross entropy of all outputs; trained weights do not require the library's own loss."""
    outs = [out.reshape(len(labels), -1) for out in floats(model(*args), "model") if out.numel() % len(labels) == 0]
    out = torch.cat(outs, 1).clamp(-30, 30)
    inside = bool(((out >= 0) & (out <= 1)).all())
    logit = torch.logit(out, 1e-6) if inside else out
    return functional.binary_cross_entropy_with_logits(logit, labels[:, None].expand_as(logit))


def train(model: nn.Module, args: tuple[Any, ...], pruner: fw.Pruner, rate: float) -> None:
    """Train with a few Adam steps, so that weights and batch-norm statistics differ from their initial values."""
    labels = torch.randint(0, 2, (zoo.BATCH,)) * 0.6 + 0.2  # soft labels: a saturated sigmoid would hide the logits
    weights = [weight for weight in model.parameters() if weight.is_floating_point() and weight.requires_grad]
    optimizer = torch.optim.Adam(weights, lr=rate)
    model.train()
    for _ in range(STEPS):
        pruner.step(lambda: loss_of(model, args, labels))
        optimizer.zero_grad()
        loss_of(model, args, labels).backward()
        optimizer.step()
    model.eval()


def masked(model: nn.Module, args: tuple[Any, ...], pruner: fw.Pruner, mask: Mask) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the logits of the masked model, read before the sigmoid and computed from its outputs."""
    gating, vector = pruner._gating, torch.from_numpy(mask.vector).float()
    with torch.no_grad(), evaluating(model), gating.changed(gating.by(vector)):
        return run(model, args), logits(model(*args))


def torch_pruning(model: nn.Module, args: tuple[Any, ...], pruner: fw.Pruner) -> str:
    """Prune the same columns with Torch-Pruning, in a fork that ends when its CPU time is used up."""
    kept, wanted = _never_empty(model, args, pruner)
    pruner.remove()
    answer, said = os.pipe()
    child = os.fork()
    if child == 0:
        limit = int(time.process_time()) + PATIENCE
        resource.setrlimit(resource.RLIMIT_CPU, (limit, limit + 5))
        os.write(said, _by_torch_pruning(model, args, kept, wanted).encode())
        os._exit(0)
    os.close(said)
    with os.fdopen(answer) as pipe:
        found = pipe.read()
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    return found or (f"not finished after {PATIENCE} s" if code == -signal.SIGXCPU else f"error (code {code})")


Kept = list[tuple[nn.Module, list[int], int]]
"""Each table, the columns that it keeps, and its width."""


def _never_empty(model: nn.Module, args: tuple[Any, ...], pruner: fw.Pruner) -> tuple[Kept, torch.Tensor]:
    """The columns that tables keep, at least one each because Torch-Pruning cannot empty a table, and the logits."""
    full = pruner.mask.full
    mask = Mask(full, tuple(kept or (0,) for kept in pruner.mask.kept))
    tables = [(site.module, site.kept(mask), full.widths[site.fields[0]]) for site in pruner.tables.sites]
    return tables, masked(model, args, pruner, mask)[1]


def _by_torch_pruning(model: nn.Module, args: tuple[Any, ...], tables: Kept, wanted: torch.Tensor) -> str:
    import torch_pruning as tp

    try:
        for weight in model.parameters():
            weight.requires_grad_(weight.is_floating_point())
        graph = tp.DependencyGraph()
        graph.build_dependency(model, example_inputs=args, forward_fn=lambda m, given: m(*given))
        for table, kept, width in tables:
            if table.get_parameter("weight").shape[1] != width:
                continue  # an earlier group already removed it
            dead = [k for k in range(width) if k not in kept]
            graph.get_pruning_group(table, tp.prune_embedding_out_channels, idxs=dead).prune()
        with torch.no_grad():
            found = gap(logits(model(*args)), wanted)
    except Exception as error:
        return f"error ({type(error).__name__})"
    return "exact" if found <= 1e-5 else f"wrong by {found:.0e}"


def onnx_runtime(folded: nn.Module, call: Example, wanted: torch.Tensor) -> bool | str:
    """Return True if ONNX Runtime computes the same outputs, else the error or the difference."""
    try:
        program = torch.onnx.export(exported(folded, call), call.args, kwargs=dict(call.kwargs), verbose=False)
        assert program is not None
        found = gap(logits(program(*call.args, **call.kwargs)), wanted)
    except Exception as error:
        first: BaseException = error
        while first.__cause__ is not None:
            first = first.__cause__
        return f"{type(first).__name__}: {(str(first).splitlines() or [''])[0][:120]}"
    return True if found < 1e-4 else f"differs by {found:.0e}"


def row(library: str, name: str, build: zoo.Builder, refresh: dict[str, Any] | None = None) -> dict[str, Any]:
    """Measure one row of the matrix; with `refresh`, only its sizes and difference."""
    torch.manual_seed(0)
    model, args = build()
    call = Example(args)
    pruner = fw.Pruner(model, args, fw.searches.SSEDS(), BUDGET)  # SSEDS: all columns train
    train(model, args, pruner, RATES.get((library, name), 0.02))
    small = pruner.compact()
    assert pruner.report is not None
    exact, wanted = masked(model, args, pruner, pruner.mask)
    difference = gap(run(small, args), exact)
    found: dict[str, Any] = {
        "library": library,
        "model": name,
        "tables": len(pruner.tables.layout.schema),
        "table_parameters": list(pruner.report.tables),
        "dense": list(pruner.report.dense),
        "whole": {whole.name: whole.why for whole in pruner.report.whole},
        "difference": difference,
        "masked": gap(masked(model, args, pruner, Mask.all(pruner.mask.full))[0], exact),
    }
    if refresh is not None:
        return {**refresh, **found}
    try:
        folded = fold(small, args)
        with torch.no_grad():
            found["export"] = gap(logits(folded(*args)), wanted) < 1e-5
        found["onnxruntime"] = onnx_runtime(folded, call, wanted)
    except FieldwiseError as error:
        found["export"] = found["onnxruntime"] = str(error)
    found["torch_pruning"] = torch_pruning(model, args, pruner)
    return found


def page(rows: list[dict[str, Any]]) -> str:
    """Return the matrix as a Markdown table."""
    heads = ("library", "model", "tables", "dense parameters", "difference", "torch.export", "ONNX Runtime")
    lines = [f"| {' | '.join(heads)} | Torch-Pruning |", "|---" * (len(heads) + 1) + "|"]
    for entry in rows:
        before, after = entry["dense"]
        yes = {key: "yes" if entry.get(key) is True else "no" for key in ("export", "onnxruntime")}
        lines.append(
            f"| {entry['library']} | {entry['model']} | {entry['tables']} | {before:,} -> {after:,} | "
            f"{entry['difference']:.0e} | {yes['export']} | {yes['onnxruntime']} | {entry['torch_pruning']} |"
        )
    return "\n".join(lines)


def measure(given: argparse.Namespace, record: dict[str, Any]) -> int:
    """Measure the models and store each row as it is complete; return how many models failed."""
    failed = 0
    for library, name, build in zoo.models(given.libraries, given.zoo):
        if given.models and name not in given.models:
            continue
        try:
            before = [r for r in record["rows"] if (r["library"], r["model"]) == (library, name)] or [{}]
            found = row(library, name, build, before[0] if given.refresh else None)
        except Exception as error:
            print(f"{library} {name}: {type(error).__name__}: {error}", file=sys.stderr)
            failed += 1
            continue
        print(json.dumps(found), flush=True)
        package = PACKAGES.get(library, library)
        record["versions"] |= {package: version(package), "torch": torch.__version__}
        record["versions"]["torch-pruning"] = version("torch-pruning")
        record["rows"] = [r for r in record["rows"] if (r["library"], r["model"]) != (library, name)] + [found]
        order = list(zoo.LIBRARIES)
        record["rows"].sort(key=lambda r: (order.index(r["library"]), r["model"].lower()))
        given.out.parent.mkdir(parents=True, exist_ok=True)
        given.out.write_text(json.dumps(record, indent=1) + "\n")
    return failed


def main() -> None:
    """Measure rows, and write the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--libraries", nargs="*", default=list(zoo.LIBRARIES), choices=list(zoo.LIBRARIES))
    parser.add_argument("--models", nargs="+", help="names of models; default: all")
    parser.add_argument("--zoo", type=Path, help="path to FuxiCTR's model_zoo folder")
    parser.add_argument("--refresh", action="store_true", help="measure only sizes and differences")
    parser.add_argument("--page", type=Path, help="the page to write the table into")
    parser.add_argument("--out", type=Path, required=True)
    given = parser.parse_args()
    everything = given.libraries == list(zoo.LIBRARIES) and not given.models and not given.refresh
    record = {"versions": {}, "rows": []}
    if given.out.exists() and not everything:
        record = json.loads(given.out.read_text())
    warnings.simplefilter("ignore")
    logging.disable(logging.CRITICAL)
    failed = measure(given, record)
    if given.page:
        text = given.page.read_text()
        head, tail = text[: text.index(BEGIN) + len(BEGIN)], text[text.index(END) :]
        given.page.write_text(f"{head}\n{page(record['rows'])}\n{tail}")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
