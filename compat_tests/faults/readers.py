"""Stock consumers, each the one member of a group of its own, that read and commit for as long as a campaign lasts."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING, Final, Self

from compat_tests.clients.confluent.clients import wait_until
from compat_tests.faults.history import Found, Place
from compat_tests.faults.reader_check import check_reader
from compat_tests.faults.writers import unpadded
from compat_tests.features.groups.members import Member, Party, java_host
from compat_tests.features.transactions.readers import committed, ends
from compat_tests.harness.host import Host
from compat_tests.harness.sources import go_program

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from compat_tests.harness.broker import Broker

READ_WITHIN_S: Final = 90.0
SESSION_TIMEOUT_MS: Final = 10_000  # longer than a broker that leaves in order takes to be back
# Events of a consumer that was disturbed: it raised an error, or lost its partitions.
DISTURBANCES: Final = ("commit_failed", "poll_failed", "error", "failed", "lost")


def franz_go(broker: Broker, topic: str, group: str) -> Member:
    """A franz-go consumer as a member. It obeys no commands and leaves when its process ends."""
    return Member(Host([go_program("stream"), "read", broker.bootstrap, topic, group]), "", [], is_process=True)


class Readers:
    """A consumer of each client library; consumers that still run at the end of `with` are killed."""

    def __init__(self, broker: Broker, topic: str, partitions: int, clients: Collection[str]) -> None:
        self._broker = broker
        self._topic = topic
        self._partitions = partitions
        self._clients = clients
        self._members: dict[str, Member] = {}
        self._ends = ExitStack()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self.end()

    def start(self) -> None:
        with ExitStack() as stack:
            for client in self._clients:
                self._members[client] = self._start(client, stack)
            self._ends = stack.pop_all()

    def end(self) -> None:
        self._ends.close()

    def _start(self, client: str, stack: ExitStack) -> Member:
        group = group_of(client)
        if client == "franz-go":
            member = franz_go(self._broker, self._topic, group)
            stack.callback(member.end)
            return member
        hosts = stack.enter_context(ExitStack())

        def java() -> Host:
            host = java_host()
            hosts.callback(host.kill)
            return host

        party = stack.enter_context(Party(self._broker, client, group, self._topic, java=java))
        return party.start(session_timeout_ms=SESSION_TIMEOUT_MS, heartbeat_interval_ms=1_000)

    def wait_until_all_is_committed(self) -> None:
        """Wait until all records that are written by now are read and committed."""
        for client, member in self._members.items():
            wait_until(
                self._has_committed_all(client),
                f"{client} does not commit all\n{member.event_summary()}",
                READ_WITHIN_S,
            )

    def _has_committed_all(self, client: str) -> Callable[[], bool]:
        def has_committed_all() -> bool:
            all_of_it = ends(self._broker, self._topic, self._partitions, "read_committed")
            group, each = group_of(client), range(self._partitions)
            return [committed(self._broker, group, self._topic, number) for number in each] == all_of_it

        return has_committed_all

    def complaints(self) -> list[str]:
        """Events that no application should get while brokers stop in order."""
        return [
            f"{client}: {event}"
            for client, member in self._members.items()
            for event in member.events
            if event["event"] in DISTURBANCES
        ]

    def anomalies(self, read: list[Found], *, is_exact: bool = True) -> list[str]:
        """Differences between the records that were read and the log. `is_exact`: no consumer had a reason to read
        again."""
        return [
            f"{client}: {anomaly}"
            for client, member in self._members.items()
            for anomaly in check_reader(seen_by(member), read, is_exact=is_exact)
        ]


def group_of(client: str) -> str:
    return f"readers by {client}"


def seen_by(member: Member) -> list[Found]:
    return [Found(Place(partition, offset), unpadded(value)) for _, partition, offset, value in member.seen]
