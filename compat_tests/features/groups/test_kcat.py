"""kcat -G (librdkafka 2.0): balanced consumers from the shell."""

from __future__ import annotations

import itertools
import re
import signal
import subprocess
from contextlib import ExitStack
from typing import TYPE_CHECKING

import pytest

from compat_tests.clients.confluent.clients import create_topic, wait_until
from compat_tests.features.groups.members import SESSION_TIMEOUT_MS
from compat_tests.features.groups.records import fill
from compat_tests.harness.requirements import need_kcat

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from compat_tests.harness.broker import Broker

PARTITIONS = 4


class Kcat:
    """A `kcat -G` process. Its messages about rebalances are in a file, its records in another."""

    def __init__(self, directory: Path, broker: Broker, group: str, topic: str, *settings: str) -> None:
        directory.mkdir()
        self._said = directory / "stderr"
        self._read = directory / "stdout"
        quick = (f"session.timeout.ms={SESSION_TIMEOUT_MS}", "heartbeat.interval.ms=300", "auto.offset.reset=earliest")
        options = [part for setting in (*quick, *settings) for part in ("-X", setting)]
        command = [need_kcat(), "-b", broker.bootstrap, "-u", "-f", "%t/%p/%o\n", *options, "-G", group, topic]
        with self._said.open("wb") as said, self._read.open("wb") as read:
            self._process = subprocess.Popen(command, stdout=read, stderr=said)

    @property
    def owned(self) -> int:
        """The number of its partitions, without those that it was asked to give back."""
        count = 0
        for verb, partitions in re.findall(r"(assigned|revoked): (.*)", self._said.read_text()):
            count = len(re.findall(r"\[\d+\]", partitions)) if verb == "assigned" else 0
        return count

    @property
    def read(self) -> set[str]:
        return set(self._read.read_text().split())

    def leave(self) -> None:
        self._end(signal.SIGTERM)

    def crash(self) -> None:
        self._end(signal.SIGKILL)

    def _end(self, number: signal.Signals) -> None:
        if self._process.poll() is None:
            self._process.send_signal(number)
        self._process.wait(30)


@pytest.fixture
def start(broker: Broker, topic: str, tmp_path: Path) -> Iterator[Callable[..., Kcat]]:
    """Starts members of the group of the test."""
    numbers = itertools.count()
    with ExitStack() as ends:

        def one(*settings: str, topics: str = topic) -> Kcat:
            member = Kcat(tmp_path / str(next(numbers)), broker, f"group-of-{topic}", topics, *settings)
            ends.callback(member.crash)
            return member

        yield one


def share(*shares: tuple[Kcat, int]) -> None:
    wait_until(
        lambda: all(member.owned == count for member, count in shares),
        f"not shared as {[count for _, count in shares]}",
        30,
    )


def read(topic: str, count: int, *members: Kcat) -> None:
    expected = {f"{topic}/{partition}/{offset}" for partition in range(PARTITIONS) for offset in range(count)}
    wait_until(lambda: set().union(*(member.read for member in members)) == expected, "not all was read", 30)


@pytest.mark.parametrize("assignor", ["range", "roundrobin"])
def test_join_second_member_leave_and_crash(
    broker: Broker, topic: str, start: Callable[..., Kcat], assignor: str
) -> None:
    create_topic(broker, topic, PARTITIONS)
    fill(broker, topic, PARTITIONS, range(3))
    setting = f"partition.assignment.strategy={assignor}"
    first = start(setting)
    share((first, 4))
    read(topic, 3, first)
    second = start(setting)
    share((first, 2), (second, 2))
    second.leave()
    share((first, 4))
    third = start(setting)
    share((first, 2), (third, 2))
    fill(broker, topic, PARTITIONS, range(3, 6))
    read(topic, 6, first, third)
    third.crash()
    share((first, 4))


def test_a_static_member_comes_back_unnoticed(broker: Broker, topic: str, start: Callable[..., Kcat]) -> None:
    create_topic(broker, topic, PARTITIONS)
    slow = "session.timeout.ms=25000"
    first, second = (start(f"group.instance.id={name}", slow) for name in "ab")
    share((first, 2), (second, 2))
    before = first._said.read_text()
    second.crash()
    second = start("group.instance.id=b", slow)
    share((second, 2))
    assert first._said.read_text() == before


def test_a_pattern_finds_later_topics(broker: Broker, topic: str, start: Callable[..., Kcat]) -> None:
    create_topic(broker, f"{topic}.one", PARTITIONS)
    member = start("topic.metadata.refresh.interval.ms=500", topics=f"^{topic}\\..*")
    share((member, 4))
    create_topic(broker, f"{topic}.two", PARTITIONS)
    share((member, 8))
