"""A broker whose topic is in a remote tier or in the log dir, and the kernel that drops the pages of its files."""

from __future__ import annotations

import os
import random
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from compat_tests.clients.confluent.clients import create_topic, flush, producer, wait_until
from compat_tests.features.tiering.tiers import QUICK, tier
from compat_tests.harness.kafkawire_broker import Kafkawire

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

TOPIC = "dropped-pages"
RECORDS, RECORD_BYTES = 400, 100_000
SEGMENT_BYTES = 16 << 20  # several loads from the tier
KINDS = ("local", "directory", "s3")
WITHIN_S = 90.0


def values() -> list[bytes]:
    source = random.Random(23)
    return [source.randbytes(RECORD_BYTES) for _ in range(RECORDS)]


@contextmanager
def filled_broker(kind: str, directory: Path, records: Sequence[bytes]) -> Iterator[Kafkawire]:
    """A broker with the records in partition 0 of `TOPIC`: in files of the log dir, or all sealed segments in a tier of
    that kind."""
    with ExitStack() as stack:
        given, configs = {}, {"segment.bytes": str(SEGMENT_BYTES)}
        if kind != "local":
            given = {**QUICK, **stack.enter_context(tier(kind, directory)).given}
            configs |= {"remote.storage.enable": "true", "local.retention.bytes": "1"}
        broker = stack.enter_context(Kafkawire(directory, given))
        create_topic(broker, TOPIC, config=configs)
        client = producer(broker)
        for value in records:
            client.produce(TOPIC, value)
        flush(client)
        if kind != "local":
            files = broker.data_dir / f"{TOPIC}-0"
            wait_until(lambda: len(list(files.glob("*.log"))) == 1, "segments stay in the log dir", WITHIN_S)
        yield broker


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
