"""Invalid and extreme command-line arguments."""

from collections.abc import Callable
from random import Random
from typing import Final

from tests.fuzz.mutate_values import NUMBERS, TEXTS

Flags = Callable[[Random], tuple[str, ...]]
_RUN: Final = ("run", "settings.toml", "--dataset", "dataset")
_WORDS: Final = (
    *(text.replace("..", "x/..").replace("evil:", "absent:") for text in TEXTS if "\0" not in text),
    "é b",
)
"""Texts that a user may type; a folder or a module that the user names is meant, so neither is a stranger's."""
_KEYS: Final = (
    "run.seeds", "run.budgets", "run.device", "data.fields.user.min_count", "data.min_count", "data.tiers",
    "data.fields.price.bins",
    "data.fields.price.edges", "data.fields.price.width", "split.train", "split.valid", "engine.memory", "model.width",
    "model.hidden", "model.cross_layers", "model.dropout", "pretrain.batch", "pretrain.learning_rate",
    "pretrain.regularity.strength", "search.batch", "search.learning_rate", "search.gate.eta", "search.trace_every",
    "search.stages", "retrain.distil", "retrain.l2", "retrain.batch", "retrain.learning_rate",
    "retrain.schedule", "retrain.decay.epochs", "retrain.decay.rate",
)  # fmt: skip
_LARGE: Final = tuple(number for number in NUMBERS if not 255 < abs(number) < 10**9)
"""Numbers that are small or absurdly large; those in between may be valid and slow."""
_OWN: Final = (
    "raises:Mine",
    "syntax:Mine",
    "exits:Mine",
    "interrupts:Mine",
    "plain:Mine",
    "plain:text",
    "plain:Nothing",
)
MODULES: Final = {
    "raises": "raise RuntimeError('not today')\n",
    "syntax": "class Mine(:\n",
    "exits": "import sys\nsys.exit(0)\n",
    "interrupts": "raise BaseException('stop')\n",
    "plain": "text = 'a'\nclass Mine: pass\n",
}
"""User modules in the working directory."""


def seed(draw: Random) -> tuple[str, ...]:
    """Seeds of any size and sign."""
    return (
        *_RUN,
        "--out",
        "made",
        "--seed",
        str(draw.choice((-1, -(2**63), 2**31, 2**63, 10**30, "x", "", "1.5", "[0]"))),
    )


def out(draw: Random) -> tuple[str, ...]:
    """Folders whose names have a meaning in a terminal, a page or a path."""
    name = draw.choice(("run[/b]", "[red]x", "a b", "[/]", *_WORDS))
    return draw.choice(((*_RUN, "--out", name), ("prepare", "settings.toml", "--out", name)))


def own(draw: Random) -> tuple[str, ...]:
    """User modules that cannot be used."""
    name = draw.choice((*_OWN, "../../x:Y", "/etc/x:Y", "os:system", "builtins:int", ":", "x:", "..:x", ".:Y", "a b:C"))
    return (*_RUN, "--out", "made", draw.choice(("--model", "--search", "--source", "--engine")), name)


def named(draw: Random) -> tuple[str, ...]:
    """Unknown names."""
    flag = draw.choice(("--model", "--search", "--source", "--engine", "--preset", "--device", "--budget", "--label"))
    return (*_RUN, "--out", "made", flag, draw.choice(_WORDS))


def device(draw: Random) -> tuple[str, ...]:
    """Devices, known and unknown to torch."""
    name = draw.choice(
        ("meta", "meta", "cuda", "cuda:99", "mps", "xla", "cpu:1", "hpu", "", "cpu,cuda", "vulkan", "META", "fpga")
    )
    return ("predict", "model", "raw/clicks.csv", "-o", "out.csv", "--device", name)


def value(draw: Random) -> tuple[str, ...]:
    """Settings of any size."""
    made = draw.choice((str(draw.choice(_LARGE)), f"[{draw.choice(_LARGE)}]", f"[{', '.join(['1048576'] * 2)}]"))
    name = draw.choice(("dcnv2", "fm", "deepfm", "autoint"))
    return (*_RUN, "--out", "made", "--model", name, "--set", f"{draw.choice(_KEYS)}={made}")


def model_size(draw: Random) -> tuple[str, ...]:
    """Models too large for any machine."""
    name, key = draw.choice((("fm", "width"), ("deepfm", "width"), ("autoint", "width"), ("dcnv2", "hidden")))
    made = draw.choice((10**9, 2**40, 2**62))
    return (*_RUN, "--out", "made", "--model", name, "--set", f"model.{key}={made if key == 'width' else [made]}")


def other_value(draw: Random) -> tuple[str, ...]:
    """Settings of another type: text, dates, tables, nested arrays."""
    nested = "[" * 3_000 + "]" * 3_000
    made = draw.choice(
        ("1979-05-27", "07:32:00", "{a = 1}", nested, "true", "'x'", "[[1]]", "", "1979-05-27T07:32:00Z", *_WORDS)
    )
    return (*_RUN, "--out", "made", "--set", f"{draw.choice(_KEYS)}={made}")


def prepared_value(draw: Random) -> tuple[str, ...]:
    """Settings of a preparation."""
    key = draw.choice([key for key in _KEYS if key.startswith(("data", "split", "engine"))])
    return ("prepare", "settings.toml", "--out", "made", "--set", f"{key}={draw.choice(_LARGE)}")


def key(draw: Random) -> tuple[str, ...]:
    """Unknown keys."""
    path = ".".join(draw.choice(("run", "model", "search", "data", *_WORDS)) for _ in range(draw.randrange(1, 5)))
    return (*_RUN, "--out", "made", "--set", f"{path}={draw.choice(('1', 'x', '[]'))}")


def predict(draw: Random) -> tuple[str, ...]:
    """Missing outputs, kept columns and headers."""
    flag = draw.choice(
        (("--keep", draw.choice(_WORDS)), ("--header", draw.choice(("a,b", "click,user,item,price,tags", *_WORDS))))
    )
    name = draw.choice(("out.csv", "out.tsv", "out.parquet", "[x]/out.csv", "raw/clicks.csv", *_WORDS))
    return ("predict", "model", "raw/clicks.csv", "-o", name, *flag)


def look(draw: Random) -> tuple[str, ...]:
    """Folders with other contents than the command expects."""
    place = draw.choice(
        ("model", "raw", "dataset", "run", "run/seed-0", "settings.toml", "/dev/null", "/dev/zero", "", *_WORDS)
    )
    words = draw.choice((("report",), ("watch", "--once"), ("describe",), ("report", "--format", "md")))
    return (*words, "--", place)


def export(draw: Random) -> tuple[str, ...]:
    """Exports with any alignment, to any folder."""
    name = draw.choice(("made", "[x]", "settings.toml", *_WORDS))
    align = str(draw.choice((0, -1, 1, 4, 2**31, 2**63, 10**30)))
    return (
        "export",
        "model",
        "--to",
        draw.choice(("json", "fuxictr", "deepctr", "torcheasyrec")),
        "-o",
        name,
        "--align",
        align,
    )


FLAGS: Final[tuple[Flags, ...]] = (
    seed, out, own, named, device, value, model_size, other_value, prepared_value, key, predict, look, export,
)  # fmt: skip
