"""The targets of mutations, and the commands that use them: every file that a command reads, and the flags."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random
from typing import Final

from tests.fuzz import flags, hostile
from tests.fuzz.mutate_bytes import BYTES, Bytes
from tests.fuzz.mutate_files import DISK, GZIP, NPY, PARQUET, PLAIN, SAFETENSORS, TEXT
from tests.fuzz.mutate_values import JSON, TOML

Command = tuple[str, ...]
PREDICT: Final = ("predict", "model", "raw/clicks.csv", "-o", "out.csv")
EXPORT: Final = ("export", "model", "--to", "torchrec", "-o", "made")
RUN: Final = ("run", "--out", "run")
BRIEF: Final = tuple(
    word for stage in ("pretrain", "search", "retrain") for word in ("--set", f"{stage}.epochs=1")
)  # mutated settings may ask for long trainings
PREPARE: Final = ("--source", "table", "--label", "click", "--out", "made")


@dataclass(frozen=True)
class Target:
    """Files of one kind, the mutations that fit them, and the commands that read them."""

    name: str
    needs: tuple[str, ...]
    """Files and folders of the base that are copied to the case's folder."""
    commands: tuple[Command, ...]
    """One of these is run."""
    files: tuple[str, ...] = ()
    """Globs; one of the matching files is mutated."""
    mutations: Mapping[str, Bytes] | None = None
    edits: Mapping[str, hostile.Edit] | None = None
    """Edits of the folder that only an attacker would make."""
    signed: bool = False
    """Whether the checksums of the model folder are updated after the mutation, as an attacker would."""
    refused: bool = False
    """Whether every changed byte must be detected."""
    own: bool = False
    """Whether the user names the file and may pass a pipe or a device; otherwise the file is untrusted."""
    words: flags.Flags | None = None
    """Draws the arguments of the command, for targets without files."""

    @property
    def kinds(self) -> tuple[str, ...]:
        """The names of its mutations."""
        if self.words:
            return (self.words.__name__.replace("_", "-"),)
        return (*(self.mutations or {}), *(self.edits or {}), *(PLAIN if self.own else DISK))

    def command(self, draw: Random) -> Command:
        """Returns the arguments of the command to run."""
        return self.words(draw) if self.words else draw.choice(self.commands)

    def mutate(self, folder: Path, kind: str, draw: Random) -> str:
        """Changes one file in the folder and returns its name."""
        if self.words:
            return "flags"
        if self.edits and kind in self.edits:
            name = self.edits[kind](folder, draw)
        else:
            path = draw.choice(sorted(path for glob in self.files for path in folder.glob(glob)))
            name = str(path.relative_to(folder))
            if self.mutations and kind in self.mutations:
                path.write_bytes(self.mutations[kind](path.read_bytes(), draw))
            else:
                DISK[kind](path, draw)
        if self.signed:
            hostile.sign(folder / "model")
        return name


def _model(
    name: str, files: str, mutations: Mapping[str, Bytes], edits: Mapping[str, hostile.Edit] | None = None
) -> Target:
    commands = (PREDICT, PREDICT, PREDICT, ("export", "model", "--to", "json", "-o", "made"))
    return Target(f"model: {name}", ("model", "raw"), commands, (f"model/{files}",), mutations, edits, signed=True)


def _dataset(name: str, files: str, mutations: Mapping[str, Bytes]) -> Target:
    used = ("run", "settings.toml", "--dataset", "dataset", "--out", "made", *BRIEF)
    commands = (used,) if name == "arrays" else (("describe", "dataset"), ("describe", "dataset"), used)
    return Target(f"dataset: {name}", ("dataset", "settings.toml"), commands, (f"dataset/{files}",), mutations)


def _run(name: str, files: tuple[str, ...], mutations: Mapping[str, Bytes], *commands: Command) -> Target:
    used = commands or (RUN, ("report", "run"))
    edits = hostile.SETTINGS if name == "settings.toml" else None
    return Target(f"run: {name}", ("run", "dataset", "raw"), used, files, mutations, edits)


def _raw(name: str, mutations: Mapping[str, Bytes]) -> Target:
    file = f"raw/{name}"
    prepare = ("prepare", "--raw", file, *PREPARE)
    commands = (prepare, (*prepare, "--engine", "arrow"), ("predict", "model", file, "-o", "out.csv"))
    return Target(f"raw: {name}", ("model", "raw"), commands, (file,), mutations, own=True)


UNSIGNED: Final = Target("model: any file, unsigned", ("model", "raw"), (PREDICT,), ("model/*",), BYTES, refused=True)
TARGETS: Final = (
    _model("model.json", "model.json", JSON, hostile.MODEL),
    _model("weights", "model.safetensors", SAFETENSORS, hostile.WEIGHTS),
    _model("encoding.json", "encoding.json", JSON),
    _model("vocabularies", "vocabulary-*.parquet", PARQUET),
    UNSIGNED,
    _dataset("dataset.json", "dataset.json", JSON),
    _dataset("encoding.json", "encoding.json", JSON),
    _dataset("vocabularies", "vocabulary-*.parquet", PARQUET),
    _dataset("arrays", "*.npy", NPY),
    _run("settings.toml", ("run/settings.toml",), TOML, RUN),
    _run("stage.json", ("run/seed-0/*/stage.json", "run/seed-0/*/*/stage.json"), JSON, RUN),
    _run("record.json", ("run/record.json", "run/seed-0/*/record.json", "run/seed-0/*/*/record.json"), JSON),
    _run("checkpoint.json", ("run/seed-0/search/*/checkpoint/**/*.json",), JSON, RUN),
    _run("checkpoint's tensors", ("run/seed-0/search/*/checkpoint/**/*.safetensors",), SAFETENSORS, RUN),
    _run("mask.json", ("run/seed-0/search/6-columns/mask.json",), JSON),
    _run("metrics.jsonl", ("run/metrics.jsonl",), TEXT, ("watch", "run", "--once"), ("report", "run")),
    Target(
        "settings given", ("settings.toml", "raw", "dataset"),
        (("run", "settings.toml", "--dataset", "dataset", "--out", "made", *BRIEF),
         ("prepare", "settings.toml", "--out", "made")), ("settings.toml",), TOML, own=True,
    ),
    _raw("clicks.csv", TEXT),
    _raw("clicks.tsv", TEXT),
    _raw("clicks.csv.gz", GZIP),
    _raw("clicks.parquet", {name: one for name, one in PARQUET.items() if name != "unfolding"}),
    *(
        Target("flags", ("model", "raw", "dataset", "run", "settings.toml"), (), words=made)
        for made in flags.FLAGS
    ),
)  # fmt: skip
KINDS: Final = tuple((target, kind) for target in TARGETS for kind in target.kinds)
OWN: Final = "tests.models.factories:deep"
"""The factory of the model folder in `FACTORY`, which every command names."""
FACTORY: Final = tuple(
    replace(target, commands=tuple((*command, "--model", OWN) for command in (PREDICT, PREDICT, EXPORT)), edits=edits)
    for target, edits in (
        (_model("model.json", "model.json", JSON), hostile.MODULE),
        (_model("weights", "model.safetensors", SAFETENSORS), hostile.WEIGHTS),
        (UNSIGNED, None),
    )
)
"""Targets of a factory's model folder, apart from the others: their numbers stay those of the stored results."""
FACTORY_KINDS: Final = tuple((target, kind) for target in FACTORY for kind in target.kinds)
