"""Crash images: the content that a disk may have after a kill or a power cut at one operation.

A `Choice` is one legal loss of unsynced operations. Its decisions are numbered, so that all of them can be enumerated
if they are few, and drawn if they are many.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from random import Random

from engine.testing.simulated_disk import SimulatedFileSystem
from engine.testing.simulated_loss import Operation

LAST = -1


@dataclass
class Choice:
    """A choice of losses: the options named in `script`, then `default` or random ones. Option 0 loses all
    operations."""

    script: Sequence[int] = ()
    default: int = 0
    rng: Random | None = None
    counts: list[int] = field(default_factory=list)
    taken: list[int] = field(default_factory=list)

    def _pick(self, count: int) -> int:
        number = len(self.counts)
        if number < len(self.script):
            picked = self.script[number]
        else:
            picked = self.default % count if self.rng is None else self.rng.randrange(count)
        self.counts.append(count)
        self.taken.append(picked)
        return picked

    def survivors(self, unsynced: Sequence[Operation]) -> Sequence[Operation]:
        if not unsynced:
            return ()
        options = _options(unsynced)
        return options[self._pick(len(options))]

    def keeps_names(self, has_unsynced: bool) -> bool:
        return has_unsynced and bool(self._pick(2))


def _options(unsynced: Sequence[Operation]) -> list[Sequence[Operation]]:
    """Operations that may survive: prefixes, also with a torn last write, and all with one missing.

    The first option has no operation, the last one has all.
    """
    options: list[Sequence[Operation]] = []
    for length in range(len(unsynced)):
        options.append(unsynced[:length])
        last = unsynced[length]
        cuts = {1, len(last.data) // 2, len(last.data) - 1} if last.kind == "write" else set()
        options += [
            [*unsynced[:length], last._replace(data=last.data[:cut])]
            for cut in sorted(cuts)
            if 0 < cut < len(last.data)
        ]
    if "/index/" not in unsynced[0].path:  # the simulated index keeps a consistent prefix, as LevelDB does
        options += [[*unsynced[:missing], *unsynced[missing + 1 :]] for missing in range(len(unsynced) - 1)]
    options.append(unsynced)
    return options


def choices(operations: Sequence[Operation], rng: Random, count: int) -> Iterator[Choice]:
    """Yield at most `count` losses: all if there are no more, else a total loss, no loss, and drawn ones."""
    probe = Choice(default=LAST)  # nothing lost: every file comes to a decision
    SimulatedFileSystem.replayed(operations).lose(probe)
    total = 1
    for options in probe.counts:
        total *= options
    if total > count:
        yield Choice()
        yield Choice(default=LAST)
        for _ in range(count - 2):
            yield Choice(rng=rng)
        return
    script: list[int] | None = []
    while script is not None:
        choice = Choice(script)
        yield choice
        script = _next_script(choice)


def _next_script(done: Choice) -> list[int] | None:
    """The script of the next choice, after `done` was applied; None: there are no more."""
    script = list(done.taken)
    while script and script[-1] + 1 == done.counts[len(script) - 1]:
        script.pop()
    if not script:
        return None
    script[-1] += 1
    return script


def torn(operations: Sequence[Operation], rng: Random) -> list[Operation] | None:
    """The operations with the last write half done, as after a kill in the middle; None: the last one is no write."""
    last = operations[-1]
    if last.kind != "write" or len(last.data) < 2:
        return None
    return [*operations[:-1], last._replace(data=last.data[: rng.randrange(1, len(last.data))])]
