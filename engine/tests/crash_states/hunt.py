"""Examines the crash images of a workload: after each operation each kind of end, and a second end of each.

An anomaly is reported with the command that repeats it.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from random import Random

from engine.testing.simulated_loss import Operation
from engine.tests.crash_states.examine import Anomaly, Asked, Validation, examine
from engine.tests.crash_states.images import Choice, choices, torn
from engine.tests.crash_states.timeline import NEVER, NOTHING, RecordingFileSystem, Timeline
from engine.tests.crash_states.workload import Workload, run
from testkit.fake_tier import FakeTier

CHOICES_PER_PREFIX = 6


@dataclass
class Found:
    """Result of a workload: number of examined images, and anomalies."""

    images: int = 0
    anomalies: list[str] = field(default_factory=list)
    _seen: set[bytes] = field(default_factory=set)

    def is_new(self, image: RecordingFileSystem, asked: Sequence[Asked]) -> bool:
        """Whether no earlier image had the same files with the same expectations."""
        digest = blake2b(digest_size=16)
        for one in asked:
            counts = [len(content) for content in one.legal.contents]
            digest.update(f"{one.timeline.partition} {counts} {one.legal.starts} ".encode())
        for path, content in sorted(image.files().items()):
            digest.update(f"{path} {len(content)} ".encode() + content)
        is_new = digest.digest() not in self._seen
        self._seen.add(digest.digest())
        return is_new


@dataclass(frozen=True)
class End:
    """The end of a broker: a kill keeps all written bytes (`loss` is None), a power cut loses those of `loss`."""

    operations: Sequence[Operation]
    loss: Choice | None
    is_half_done: bool = False  # the last write is half done

    def image(self) -> RecordingFileSystem:
        image = RecordingFileSystem.replayed(self.operations)
        self.apply(image)
        return image

    def apply(self, image: RecordingFileSystem) -> None:
        if self.loss is None:
            image.end_process()
        else:
            image.lose(Choice(self.loss.taken) if self.loss.counts else self.loss)  # the same choice again


def hunt(seed: int, *, share: float = 1.0, only: tuple[int, int] | None = None, until_s: float = float("inf")) -> Found:
    """Examine the images of workload `seed`: about `share` of the crash points, and those after barriers; or `only` the
    one with these numbers of operations and image."""
    if time.monotonic() > until_s:
        return Found()
    found = Found()
    try:
        workload = run(seed)
    except Exception as error:  # the workload asserts the answers that it gets
        found.anomalies.append(f"--workload {seed}: {_description(error)}")
        return found
    operations = workload.filesystem.operations
    rng = Random(seed)
    # The operations after a barrier are few, so that few of them would be drawn.
    always = workload.filesystem.barriers_at
    drawn = [now for now in range(1, len(operations) + 1) if rng.random() < share or now in always]
    for now in drawn if only is None else [only[0]]:
        if time.monotonic() > until_s:
            break
        for number, end in enumerate(_ends(operations[:now], Random(seed * 1_000_003 + now))):
            if only is None or number == only[1]:
                _inspect(found, workload, now, number, end)
    return found


def _ends(operations: Sequence[Operation], rng: Random) -> Iterator[End]:
    yield End(operations, None)
    half_done = torn(operations, rng)
    if half_done is not None:
        yield End(half_done, None, is_half_done=True)
    for choice in choices(operations, rng, CHOICES_PER_PREFIX):
        yield End(operations, choice)


def _inspect(found: Found, workload: Workload, now: int, number: int, end: End) -> None:
    image = end.image()
    done = now - end.is_half_done  # answers after the last write do not count if that write is half done
    asked = [one for timelines in workload.timelines for one in _asked(timelines, done, power_cut=end.loss is not None)]
    if not found.is_new(image, asked):
        return
    found.images += 1
    seed = workload.seed * 1_000_003 + now * 101 + number
    place = f"--workload {workload.seed} --image {now}:{number}"
    try:
        tier = workload.tier.as_of(now)
        examined = examine(image, asked, workload.leader_epoch, seed, tier)
        found.images += 1
        _inspect_again(examined, end, workload.leader_epoch + 1, seed, tier)
    except Exception as error:  # any error is an anomaly, reported with its place
        found.anomalies.append(f"{place}: {_description(error)}")


def _description(error: BaseException) -> str:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return f"{type(error).__name__}: {error}"


def _asked(timelines: Sequence[Timeline], now: int, *, power_cut: bool) -> Iterator[Asked]:
    """The partition of that name as it was at that operation; a deleted one must be empty when it is created again."""
    current = max((one for one in timelines if one.opened_at <= now), key=lambda one: one.opened_at)
    if current.delete_answered_at <= now:
        yield Asked(current, NOTHING, NOTHING, is_deleted=True)
    elif current.delete_asked_at > now:
        yield Asked(current, current.legal(now, power_cut=power_cut), current.legal(now, power_cut=True))


def _inspect_again(done: Validation, end: End, leader_epoch: int, seed: int, tier: FakeTier) -> None:
    """Cut the power at a random operation of the first examination, and examine the image again."""
    rng = Random(seed + 1)
    operations = done.filesystem.operations
    now = rng.choice((rng.randint(0, len(operations)), len(operations)))
    image = end.image()
    for operation in operations[:now]:
        image.do(operation)
    image.lose(Choice(rng=rng) if rng.random() < 0.7 else Choice())
    asked = []
    for one in done.timelines:
        legal = one.legal(now, power_cut=True)
        asked.append(Asked(Timeline(one.partition, one.is_async, NEVER, is_compacted=one.is_compacted), legal, legal))
    try:
        examine(image, asked, leader_epoch, seed + 2, tier)
    except Exception as error:
        raise Anomaly(f"second crash after {now} of {len(operations)} operations: {_description(error)}") from error
