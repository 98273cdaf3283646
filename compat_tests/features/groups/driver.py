"""The process of a member, for all client libraries: it polls, commits, reports, and obeys commands from stdin.

A process of its own can be killed without leaving its group. Both directions are JSON, one document a line; the Java
members (GroupHost.java) use the same protocol. The libraries differ only behind `Client`.
"""

from __future__ import annotations

import json
import queue
import sys
import threading
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

POLL_S = 0.05
Partition = tuple[str, int]
Record = tuple[str, int, int, str]  # topic, partition, offset, value


class Client(Protocol):
    """The consumer of a library. `commit` raises the library's error if the group has gone on without the member."""

    def poll(self) -> list[Record]: ...
    def assignment(self) -> list[Partition]: ...
    def commit(self, offsets: dict[Partition, int], metadata: str) -> None: ...
    def committed(self, partition: Partition) -> tuple[int, str] | None: ...
    def seek(self, partition: Partition, offset: int) -> None: ...
    def pause(self, partitions: Sequence[Partition]) -> None: ...
    def resume(self, partitions: Sequence[Partition]) -> None: ...
    def idle(self, seconds: float) -> None: ...
    def close(self) -> None: ...


def emit(event: str, **fields: object) -> None:
    """Write an event as a line of JSON. Listeners of a library may call it from their own thread."""
    sys.stdout.write(json.dumps({"event": event, **fields}) + "\n")
    sys.stdout.flush()


def property_name(key: str) -> str:
    """The Python spelling of one of Kafka's configuration keys."""
    return key.replace(".", "_")


def named(partitions: Iterable[Any]) -> list[Partition]:
    """A library's partitions, in order."""
    return sorted((each.topic, each.partition) for each in partitions)


def records_of(batches: Mapping[Any, Iterable[Any]]) -> list[Record]:
    """The records of a poll of kafka-python or aiokafka."""
    return [
        (each.topic, each.partition, each.offset, each.value.decode())
        for records in batches.values()
        for each in records
    ]


class Rebalances:
    """A rebalance listener of kafka-python or aiokafka, beside the library's own class."""

    def on_partitions_assigned(self, assigned: Iterable[Any]) -> None:
        emit("assigned", partitions=named(assigned))

    def on_partitions_revoked(self, revoked: Iterable[Any]) -> None:
        emit("revoked", partitions=named(revoked))


def main(connect: Callable[[dict[str, Any]], Client]) -> None:
    """Connect with the settings of the command line, and obey commands until told to close."""
    client = connect(json.loads(sys.argv[1]))
    commands: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
    threading.Thread(target=_read_commands, args=[commands], daemon=True).start()
    shown: list[Partition] | None = None
    while True:
        _read_and_commit(client)
        owned = sorted(client.assignment())
        if owned != shown:
            emit("assignment", partitions=owned)
            shown = owned
        while not commands.empty():
            command = commands.get()
            result = _obey(client, command)
            emit("done", do=command["do"], result=result)
            if command["do"] == "close":
                return


def _read_commands(commands: queue.SimpleQueue[dict[str, Any]]) -> None:
    for line in sys.stdin:
        commands.put(json.loads(line))
    commands.put({"do": "close"})


def _read_and_commit(client: Client) -> None:
    records = client.poll()
    if not records:
        return
    emit("records", records=records)
    ends = {(topic, partition): offset + 1 for topic, partition, offset, _ in records}
    try:
        client.commit(ends, "read")
    except Exception as error:  # each library has its own; the record is read again by its new owner
        emit("commit_failed", error=repr(error))
    else:
        emit("committed", offsets=[(*partition, offset) for partition, offset in ends.items()])


def _obey(client: Client, command: dict[str, Any]) -> object:
    partitions = [(topic, partition) for topic, partition in command.get("partitions", [])]
    match command["do"]:
        case "close":
            client.close()
        case "idle":
            client.idle(command["seconds"])
        case "pause":
            client.pause(partitions)
        case "resume":
            client.resume(partitions)
        case "seek":
            client.seek(partitions[0], command["offset"])
        case "commit":
            client.commit({partitions[0]: command["offset"]}, command["metadata"])
        case "committed":
            return client.committed(partitions[0])
        case unknown:
            raise AssertionError(unknown)
    return None
