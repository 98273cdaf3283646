"""Writes data dirs with the broker of any version, to be opened by later versions.

    .venv/bin/python -m compat_tests.features.formats.make_data_dirs 0.1.0 path/to/that/version/.venv/bin/kafkawire

starts that `kafkawire`, fills it, and ends it in three ways: `stopped` in order; `killed`, with records that are synced
in its journal only; `cut` from its power, with the content that an ext4 filesystem has then, for which it needs root.
Each becomes `data-dirs/<name>-<how>.tar.xz`, with a JSON file of the content that the version itself reports. To be run
for each release, with its name; the files of earlier versions stay as they are.

Values compress well, because segments are not smaller than 1 MiB.
"""

from __future__ import annotations

import json
import shutil
import sys
import tarfile
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigResource, ResourceType

from compat_tests.clients.confluent.clients import (
    TIMEOUT_S,
    Admin,
    Delivery,
    alter,
    commit,
    create_topic,
    flush,
    new_consumer,
    producer,
    wait_until,
    watermarks,
    with_consumer,
)
from compat_tests.faults.loop_image import LoopImage
from compat_tests.features.formats.contents import INDEXED, KEEPING, batches, contents_of
from compat_tests.harness.kafkawire_broker import Kafkawire

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from compat_tests.features.formats.contents import Contents

DATA_DIRS = Path(__file__).parent / "data-dirs"
ARCHIVE_MAX_BYTES = 200 << 10
WRITING = KEEPING | {
    "log.cleaner.enable": "true",
    "log.cleaner.backoff.ms": "200",
    "group.initial.rebalance.delay.ms": "0",
}
SEGMENT = {"segment.bytes": str(1 << 20)}
COMPACTED = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01", "file.delete.delay.ms": "500", **SEGMENT}
UNSYNCED = {"flush.policy": "async", "flush.ms": "3600000"}
ROUNDS, LAST_ROUNDS = 45, 5  # a slot of the journal takes 31
SLOT_GIVEN_BACK_S = 2
IMAGE_SIZE_MIB = 256


class Earlier(Kafkawire):
    """A broker of another version."""

    def __init__(self, directory: Path, overrides: Mapping[str, str], executable: Path) -> None:
        super().__init__(directory, overrides)
        self.program = (str(executable),)


def value(number: int, size_bytes: int) -> bytes:
    text = b"value %d " % number
    return text * (size_bytes // len(text))


def produce(
    broker: Kafkawire, topic: str, partitions: int, count: int, size_bytes: int, keys: int = 0, **settings: object
) -> None:
    """Produce so many records to each of the partitions; with `keys`, with as many keys in turn."""
    delivery = Delivery()
    client = producer(broker, acks="all", batch_num_messages=5, **settings)
    for number in range(count):
        key = f"customer-{number % keys}" if keys else None
        for partition in range(partitions):
            client.produce(topic, value(number, size_bytes), key, partition, on_delivery=delivery)
    flush(client)
    assert not delivery.errors


def fill(broker: Kafkawire) -> None:
    create_topic(broker, "plain", 3, SEGMENT)
    produce(broker, "plain", 3, 100, 30_000)
    Admin(broker).delete_records("plain", 7)
    create_topic(broker, "idempotent", 2, {"compression.type": "lz4"})
    produce(broker, "idempotent", 2, 50, 100, enable_idempotence=True)
    create_topic(broker, INDEXED, 2, {"index.keys": "true", **SEGMENT})
    produce(broker, INDEXED, 2, 300, 10_000, keys=50, compression_type="gzip")
    create_topic(broker, "unsynced", 1, UNSYNCED)
    produce(broker, "unsynced", 1, 20, 1_000)
    create_topic(broker, "goes")
    produce(broker, "goes", 1, 20, 1_000)
    Admin(broker).delete("goes")
    _compact(broker)
    _commit(broker)
    Admin(broker).alter_config("plain", "retention.ms", "86400000000")
    Admin(broker).alter_config("idempotent", "max.message.bytes", "2000000")
    this = ConfigResource(ResourceType.BROKER, "1")
    alter(AdminClient({"bootstrap.servers": broker.bootstrap}), this, {"max.connections": _set_to("12345")})
    wait_until(lambda: _are_sealed(broker), "finished segments are not sealed", 90)


def write_last(broker: Kafkawire) -> None:
    """Write small commit batches over several partitions; the last ones are durable in the journal alone."""
    delivery = Delivery()
    clients = [producer(broker, acks="all", enable_idempotence=True) for _ in range(2)]
    for number in range(ROUNDS + LAST_ROUNDS):
        if number == ROUNDS:
            time.sleep(SLOT_GIVEN_BACK_S)  # the batches of a full slot get synced in their segments
        for client, topic in zip(clients, ("plain", "idempotent"), strict=True):
            for partition in range(2):
                client.produce(topic, value(number, 100), partition=partition, on_delivery=delivery)
        for client in clients:
            flush(client)
    assert not delivery.errors


def _compact(broker: Kafkawire) -> None:
    """Overwrite and delete keys, and wait until the compaction is over."""
    create_topic(broker, "compacted", 1, COMPACTED)
    produce(broker, "compacted", 1, 200, 25_000, keys=40)
    client = producer(broker)
    for number in range(5):
        client.produce("compacted", None, f"customer-{number}", 0)
    flush(client)
    produce(broker, "compacted", 1, 40, 40_000, keys=4)  # in segments of their own, the last of which stays as it is
    sizes = [0]

    def is_at_rest() -> bool:
        where = TopicPartition("compacted", 0)
        start, end = with_consumer(broker, lambda one: watermarks(one, where))
        sizes.append(sum(map(len, batches(broker, "compacted", 0, start, end))))
        time.sleep(0.3)
        return len(sizes) > 10 and len(set(sizes[-10:])) == 1 and sizes[-1] < sizes[1] // 2

    wait_until(is_at_rest, "nothing is compacted", 60)


def _commit(broker: Kafkawire) -> None:
    member = new_consumer(broker, group_id="members", auto_offset_reset="earliest")
    member.subscribe(["idempotent"])
    assert len(member.consume(60, TIMEOUT_S)) == 60
    member.commit(asynchronous=False, offsets=member.position(member.assignment()))
    member.close()
    committer = new_consumer(broker, group_id="committers")
    commit(committer, *(TopicPartition("plain", one, 10 + one, metadata="by hand") for one in range(3)))
    committer.close()


def _set_to(text: str) -> tuple[AlterConfigOpType, str]:
    return AlterConfigOpType.SET, text


def _are_sealed(broker: Kafkawire) -> bool:
    data = Path(broker.overrides.get("log.dirs", broker.data_dir))
    return all(
        len(list(each.glob("*.footer"))) == len(list(each.glob("*.log"))) - 1 > 0 for each in data.glob("plain-*")
    )


def pack(data: Path, archive: Path) -> None:
    """Pack the data dir as small as possible, without the name of its owner."""

    def anonymous(entry: tarfile.TarInfo) -> tarfile.TarInfo:
        entry.uid = entry.gid = 0
        entry.uname = entry.gname = ""
        return entry

    with tarfile.open(archive, "w:xz", preset=9) as packed:
        packed.add(data, "data", filter=anonymous)
    size_bytes = archive.stat().st_size
    assert size_bytes <= ARCHIVE_MAX_BYTES, f"{archive.name} takes {size_bytes} bytes"
    print(f"{archive.name}: {size_bytes} bytes")


@contextmanager
def unpacked(archive: Path) -> Iterator[Path]:
    """The directory of an unpacked data dir, for the block."""
    with tempfile.TemporaryDirectory() as directory, tarfile.open(archive, "r:xz") as packed:
        packed.extractall(directory, filter="data")
        yield Path(directory)


def stop(broker: Kafkawire) -> None:
    assert broker.stop() == 0


def make(name: str, how: str, executable: Path, leave: Callable[[Kafkawire], None], data: Path, scratch: Path) -> None:
    broker = Earlier(scratch / how, WRITING | {"log.dirs": str(data)}, executable)
    with broker:
        fill(broker)
        write_last(broker)
        before = contents_of(broker)
        leave(broker)
    archive = DATA_DIRS / f"{name}-{how}.tar.xz"
    pack(data, archive)
    with unpacked(archive) as directory:
        size_bytes = _size(directory)
        with Earlier(directory, KEEPING, executable) as again:
            after = contents_of(again)
        assert how != "cut" or _size(directory) > size_bytes, "the journal had nothing that segments had not: once more"
    assert synced(before) == synced(after)
    expected = archive.with_name(f"{name}-{how}.json")
    expected.write_text(json.dumps(after, indent=1) + "\n", encoding="utf-8")


def _size(directory: Path) -> int:
    """The size of all segments, in bytes."""
    return sum(each.stat().st_size for each in directory.glob(f"data/*/{'?' * 20}.log"))


def synced(contents: Contents) -> Contents:
    return contents | {"topics": {name: one for name, one in contents["topics"].items() if name != "unsynced"}}


def main() -> None:
    name, executable = sys.argv[1], Path(sys.argv[2]).absolute()
    DATA_DIRS.mkdir(exist_ok=True)
    scratch = Path(tempfile.mkdtemp())
    make(name, "stopped", executable, stop, scratch / "stopped-data", scratch)
    make(name, "killed", executable, Kafkawire.kill, scratch / "killed-data", scratch)
    with LoopImage(scratch / "disk", IMAGE_SIZE_MIB) as disk:
        make(name, "cut", executable, disk.cut_power, disk.mount_point / "data", scratch)
    shutil.rmtree(scratch)


if __name__ == "__main__":
    main()
