"""Reads of all sizes after the kernel has dropped the pages of a log, or of the cache of its remote tier."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest

from compat_tests.clients.confluent.clients import read
from compat_tests.features.tiering.dropped_pages import (
    KINDS,
    RECORDS,
    TOPIC,
    WITHIN_S,
    drop_pages,
    filled_broker,
    values,
)

if TYPE_CHECKING:
    from pathlib import Path

    from compat_tests.harness.broker import Broker

READERS = 20


def read_all(broker: Broker, fetch_size_bytes: int) -> list[bytes]:
    """The values from offset 0 on, without a gap."""
    limits = {"max_partition_fetch_bytes": fetch_size_bytes, "fetch_max_bytes": fetch_size_bytes}
    found = read(broker, TOPIC, 0, RECORDS, **limits)
    assert [message.offset() for message in found] == list(range(len(found)))
    return [message.value() or b"" for message in found]


@pytest.mark.parametrize("kind", KINDS)
def test_reads_of_every_size_find_all_records_after_pages_were_dropped(kind: str, tmp_path: Path) -> None:
    """A Fetch of more than one load brings was empty for ever, after all of a segment had been checked once."""
    records = values()
    with filled_broker(kind, tmp_path, records) as broker:
        assert read_all(broker, 1 << 20) == records
        for size_mib in (1, 4, 5, 8, 50):
            assert drop_pages(broker.pid, tmp_path)
            assert read_all(broker, size_mib << 20) == records, f"{size_mib} MiB"
        with ThreadPoolExecutor(READERS) as pool:
            assert drop_pages(broker.pid, tmp_path)
            reading = [pool.submit(read_all, broker, 8 << 20) for _ in range(READERS)]
            assert all(one.result(WITHIN_S) == records for one in reading)
