"""Reads of all sizes after the kernel has dropped the pages of a log, or of the cache of its remote tier."""

from __future__ import annotations

import os
import random
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from compat_tests.clients.confluent.clients import create_topic, flush, producer, read, wait_until
from compat_tests.features.tiering.tiers import QUICK, tier
from compat_tests.harness.kafkawire_broker import Kafkawire

if TYPE_CHECKING:
    from compat_tests.harness.broker import Broker

TOPIC = "dropped-pages"
RECORDS, RECORD_BYTES = 400, 100_000
SEGMENT_BYTES = 16 << 20  # several loads from the tier
READERS = 20
WITHIN_S = 90.0


def values() -> list[bytes]:
    source = random.Random(23)
    return [source.randbytes(RECORD_BYTES) for _ in range(RECORDS)]


def read_all(broker: Broker, fetch_size_bytes: int) -> list[bytes]:
    """The values from offset 0 on, without a gap."""
    limits = {"max_partition_fetch_bytes": fetch_size_bytes, "fetch_max_bytes": fetch_size_bytes}
    found = read(broker, TOPIC, 0, RECORDS, **limits)
    assert [message.offset() for message in found] == list(range(len(found)))
    return [message.value() or b"" for message in found]


def drop_pages(pid: int, directory: Path) -> int:
    """Drop the pages of all open files of a process below a directory; returns how many files there were."""
    dropped = 0
    for descriptor in Path(f"/proc/{pid}/fd").iterdir():
        with suppress(FileNotFoundError):  # closed meanwhile
            if not os.readlink(descriptor).startswith(str(directory)) or not descriptor.is_file():
                continue
            own = os.open(descriptor, os.O_RDONLY)
            os.fdatasync(own)  # dirty pages stay
            os.posix_fadvise(own, 0, 0, os.POSIX_FADV_DONTNEED)
            os.close(own)
            dropped += 1
    return dropped


@pytest.mark.parametrize("kind", ["local", "directory", "s3"])
def test_reads_of_every_size_find_all_records_after_pages_were_dropped(kind: str, tmp_path: Path) -> None:
    """A Fetch of more than one load brings was empty for ever, after all of a segment had been checked once."""
    records = values()
    with ExitStack() as stack:
        given, configs = {}, {"segment.bytes": str(SEGMENT_BYTES)}
        if kind != "local":
            given = {**QUICK, **stack.enter_context(tier(kind, tmp_path)).given}
            configs |= {"remote.storage.enable": "true", "local.retention.bytes": "1"}
        broker = stack.enter_context(Kafkawire(tmp_path, given))
        create_topic(broker, TOPIC, config=configs)
        client = producer(broker)
        for value in records:
            client.produce(TOPIC, value)
        flush(client)
        if kind != "local":
            files = broker.data_dir / f"{TOPIC}-0"
            wait_until(lambda: len(list(files.glob("*.log"))) == 1, "segments stay in the log dir", WITHIN_S)
        assert read_all(broker, 1 << 20) == records
        for size_mib in (1, 4, 5, 8, 50):
            assert drop_pages(broker.pid, tmp_path)
            assert read_all(broker, size_mib << 20) == records, f"{size_mib} MiB"
        with ThreadPoolExecutor(READERS) as pool:
            assert drop_pages(broker.pid, tmp_path)
            reading = [pool.submit(read_all, broker, 8 << 20) for _ in range(READERS)]
            assert all(one.result(WITHIN_S) == records for one in reading)
