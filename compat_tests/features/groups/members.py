"""Members of consumer groups: started, given commands, and their events collected.

A Python member is a process of its own; the Java members share one JVM, where a crash is imitated: a close that stays
in the group (KIP-1092) and sends nothing more.
"""

from __future__ import annotations

import itertools
import json
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from compat_tests.features.groups.driver import Partition
from compat_tests.harness.apache_kafka import CLASSPATH, QUICK_JVM
from compat_tests.harness.host import TIMEOUT_S, Host
from compat_tests.harness.requirements import need_command, need_kafka_jars

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from compat_tests.harness.broker import Broker
    from compat_tests.harness.host import Event

SESSION_TIMEOUT_MS = 2_000
JAVA_ASSIGNORS = {
    "range": "RangeAssignor",
    "roundrobin": "RoundRobinAssignor",
    "sticky": "StickyAssignor",
    "cooperative-sticky": "CooperativeStickyAssignor",
}


def java_host() -> Host:
    """The JVM for all Java members of a run; it compiles its own source when it starts."""
    need_kafka_jars()
    need_command("javac", "install a JDK, 17 or newer")
    source = Path(__file__).with_name("GroupHost.java")
    return Host(["java", "-Xmx256m", *QUICK_JVM, "-cp", CLASSPATH, str(source)])


class Member:
    """A consumer. `seen`: the records that it read; `owned`: its partitions, as far as it has reported them."""

    def __init__(self, host: Host, name: str, group: Sequence[Member], *, is_process: bool) -> None:
        self._host = host
        self._group = group
        self._name = name
        self._is_process = is_process
        self._is_open = True

    def _event_summaries(self) -> str:
        return "\n".join(member.event_summary() for member in self._group)

    def event_summary(self) -> str:
        """The last events of the member, for a complaint."""
        lines = "\n".join(f"  {event}"[:300] for event in self.events[-12:])
        return f"{self._name} ({'open' if self._is_open else 'ended'})\n{lines}\n{self._host.complaints()}"

    @property
    def events(self) -> list[Event]:
        return self._host.events(self._name)

    def events_of(self, kind: str) -> list[Event]:
        return [event for event in self.events if event["event"] == kind]

    @property
    def owned(self) -> list[Partition]:
        assignments = self.events_of("assignment")
        return [(topic, partition) for topic, partition in assignments[-1]["partitions"]] if assignments else []

    @property
    def seen(self) -> list[tuple[str, int, int, str]]:
        """Topic, partition, offset and value of every record, in the order of reading."""
        return [tuple(record) for event in self.events_of("records") for record in event["records"]]

    @property
    def rebalances(self) -> int:
        """The number of rebalances that the listener has reported."""
        return sum(event["event"] in ("assigned", "revoked", "lost") for event in self.events)

    def wait(self, condition: Callable[[], bool], complaint: str, timeout_s: float = TIMEOUT_S) -> None:
        self._host.wait(
            condition, lambda: f"{complaint}; the ends of their stories:\n{self._event_summaries()}", timeout_s
        )

    def owns(self, count: int, timeout_s: float = TIMEOUT_S) -> None:
        self.wait(lambda: len(self.owned) == count, f"does not own {count} partitions", timeout_s)

    def send_command(self, command: str, **fields: object) -> None:
        self._host.send({"member": self._name, "do": command, **fields})

    def ask(self, command: str, **fields: object) -> Any:
        """Send a command, wait until it is done, and return its result."""
        before = len(self.events_of("done"))
        self.send_command(command, **fields)
        self.wait(lambda: len(self.events_of("done")) > before, f"{command} is not done")
        return self.events_of("done")[-1]["result"]

    def close(self) -> None:
        """Close the consumer, as an application does at its end."""
        if self._is_open:
            self._is_open = False
            self.ask("close")
            if self._is_process:
                self._host.leave()

    def crash(self) -> None:
        """End the consumer without a message to the broker."""
        self._is_open = False
        if self._is_process:
            self._host.kill()
        else:
            self.ask("abandon")

    def end(self) -> None:
        """End the member in any state, after the scenario."""
        if self._is_open:
            self.crash()


class Party:
    """The members of one group; members that still run at the end are killed."""

    _numbers = itertools.count(1)

    def __init__(
        self, broker: Broker, client: str, group: str, *topics: str, pattern: str = "", java: Callable[[], Host]
    ) -> None:
        self._broker = broker
        self._client = client
        self._group = group
        self._topics = topics
        self._pattern = pattern
        self._java = java
        self._members: list[Member] = []
        self._ends = ExitStack()

    def start(self, assignor: str = "range", **properties: object) -> Member:
        """A new member; `properties` are Kafka's consumer configuration, with underscores for dots."""
        kafka = {
            "bootstrap.servers": self._broker.bootstrap,
            "group.id": self._group,
            "auto.offset.reset": "earliest",
            "session.timeout.ms": SESSION_TIMEOUT_MS,
            "heartbeat.interval.ms": 300,
            "metadata.max.age.ms": 1_000,
            "partition.assignment.strategy": assignor,
        } | {key.replace("_", "."): value for key, value in properties.items()}
        settings = {"topics": self._topics, "pattern": self._pattern, "properties": kafka}
        member = self._start_java(settings) if self._client == "java" else self._start_process(settings)
        self._members.append(member)
        self._ends.callback(member.end)
        return member

    def _start_process(self, settings: dict[str, Any]) -> Member:
        module = f"compat_tests.features.groups.{self._client}_member"
        return Member(Host([sys.executable, "-m", module, json.dumps(settings)]), "", self._members, is_process=True)

    def _start_java(self, settings: dict[str, Any]) -> Member:
        name = f"m{next(self._numbers)}"
        properties = settings["properties"]
        assignor = JAVA_ASSIGNORS[properties["partition.assignment.strategy"]]
        properties["partition.assignment.strategy"] = f"org.apache.kafka.clients.consumer.{assignor}"
        host = self._java()
        host.send({"member": name, "do": "start", **settings})
        return Member(host, name, self._members, is_process=False)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self._ends.close()


def share(members: Sequence[Member], counts: Sequence[int]) -> None:
    """Wait until the members own so many partitions each, and none twice."""

    def is_shared() -> bool:
        owned = [partition for member in members for partition in member.owned]
        return [len(member.owned) for member in members] == list(counts) and len(set(owned)) == sum(counts)

    for member in members:
        member.wait(is_shared, f"not shared as {list(counts)}")
