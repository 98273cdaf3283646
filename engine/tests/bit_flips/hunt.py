"""Flips one bit after the other, each in a fresh copy of a data directory; files of every kind in turn."""

from __future__ import annotations

import shutil
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from random import Random

import trio
import trio.testing

from engine.tests.bit_flips.examine import Findings, examine
from engine.tests.bit_flips.template import Template, make_template

SEALED = (".log", ".footer")
SPARSE_BYTES = 20_000  # a journal slot is mostly zeros


@dataclass
class Hunt:
    """Results of the flips, by kind of file."""

    reported: Counter[str] = field(default_factory=Counter)
    harmless: Counter[str] = field(default_factory=Counter)
    anomalies: list[str] = field(default_factory=list)

    @property
    def flips(self) -> int:
        return self.reported.total() + self.harmless.total()


@dataclass(frozen=True)
class Flip:
    """A bit of a file to flip."""

    path: Path
    position: int
    bit: int

    def apply(self, directory: Path) -> None:
        with (directory / self.path).open("r+b") as file:
            file.seek(self.position)
            (byte,) = file.read(1)
            file.seek(self.position)
            file.write(bytes([byte ^ (1 << self.bit)]))

    def is_left(self, directory: Path, template: Template) -> bool:
        """Whether the byte still differs from the template: a replay of the journal may have overwritten it."""
        path = directory / self.path
        return path.exists() and _byte(path, self.position) != _byte(template.directory / self.path, self.position)


def _byte(path: Path, position: int) -> bytes:
    with path.open("rb") as file:
        file.seek(position)
        return file.read(1)


def kind_of(path: Path) -> str:
    """The kind of a file: files of one kind are read by the same code."""
    if path.parts[0] == "index":
        return f"index {path.suffix or path.name.partition('-')[0]}"
    return path.suffix if path.suffix in {".log", ".snapshot", ".journal", ".footer"} else path.name


def draw(template: Template, rng: Random) -> Flip:
    """Draw a flip: each kind of file with the same chance, then a byte; in large files mostly a byte that is not
    zero."""
    by_kind: dict[str, list[Path]] = {}
    for path in template.files():
        by_kind.setdefault(kind_of(path), []).append(path)
    path = rng.choice(by_kind[rng.choice(sorted(by_kind))])
    content = (template.directory / path).read_bytes()
    position = rng.randrange(len(content))
    if len(content) > SPARSE_BYTES and rng.random() < 0.8:
        position = rng.choice([at for at, byte in enumerate(content) if byte])
    return Flip(path, position, rng.randrange(8))


@contextmanager
def templates(seed: int) -> Iterator[list[Template]]:
    """Make two templates: the broker of the first was stopped, that of the second was killed."""
    with tempfile.TemporaryDirectory() as scratch:
        made = []
        for is_clean in (True, False):
            directory = Path(scratch) / str(is_clean)
            directory.mkdir()
            clock = trio.testing.MockClock(autojump_threshold=0)
            made.append(trio.run(partial(make_template, directory, is_clean=is_clean, seed=seed), clock=clock))
        yield made


def look(template: Template, flip: Flip | None) -> Findings:
    """Flip a bit in a copy of the template, and examine the copy."""
    with tempfile.TemporaryDirectory() as scratch:
        directory = Path(scratch) / "data"
        shutil.copytree(template.directory, directory)
        if flip is not None:
            flip.apply(directory)
        findings = trio.run(examine, directory, template, clock=trio.testing.MockClock(autojump_threshold=0))
        findings.is_flip_left = flip is not None and flip.is_left(directory, template)
        return findings


def hunt(seed: int, count: int, until_s: float = float("inf")) -> Hunt:
    """Do `count` flips, in turn in both templates of `seed`."""
    done = Hunt()
    with templates(seed) as both:
        for number in range(count):
            if time.monotonic() > until_s:
                break
            template = both[number % 2]
            flip = draw(template, Random(f"{seed} {number}"))
            _count(done, template, flip, f"--seed {seed} --flip {number}")
    return done


def repeat(seed: int, number: int) -> Hunt:
    """Repeat a single flip of `hunt`."""
    done = Hunt()
    with templates(seed) as both:
        template = both[number % 2]
        _count(done, template, draw(template, Random(f"{seed} {number}")), f"--seed {seed} --flip {number}")
    return done


def _count(done: Hunt, template: Template, flip: Flip, place: str) -> None:
    kind = kind_of(flip.path)
    where = f"{place} ({'stopped' if template.is_clean else 'killed'}, {flip.path} at {flip.position}, bit {flip.bit})"
    try:
        findings = look(template, flip)
    except Exception as error:  # any error is an anomaly, reported with its place
        done.reported[kind] += 1
        while isinstance(error, ExceptionGroup):
            error = error.exceptions[0]
        done.anomalies.append(f"{where}: {type(error).__name__}: {error}")
        return
    (done.reported if findings.reported else done.harmless)[kind] += 1
    is_unnoticed = findings.is_flip_left and kind in SEALED and not findings.reported
    unnoticed = ["nobody found it"] if is_unnoticed else []
    done.anomalies += [f"{where}: {anomaly}" for anomaly in [*findings.anomalies, *unnoticed][:1]]
