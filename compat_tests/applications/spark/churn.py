"""Topics that change while they are read: their records are sealed, copied to a tier, compacted and deleted.

Each of them has transactions, some of them aborted, and records without a transaction.
"""

from __future__ import annotations

import random
import re
import urllib.request
from collections import Counter
from typing import TYPE_CHECKING, Any, Final, Self

from compat_tests.applications.spark.feed import Feed
from compat_tests.clients.confluent.clients import create_topic, wait_until
from compat_tests.features.tiering.brokers import TieredKafkawire
from compat_tests.features.transactions.readers import ends, undecided

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

PARTITIONS: Final = 2
# Segments are soon full, and those of a tier soon gone from the log dir.
_ALL: Final = {"segment.bytes": str(1 << 20), "segment.ms": "1000"}
_TIERED: Final = {**_ALL, "remote.storage.enable": "true", "local.retention.bytes": "1"}
_SHORT: Final = {"retention.bytes": str(400_000)}
TIERED: Final = "tiered"
KEPT: Final[Mapping[str, Mapping[str, str]]] = {  # of which no reader may miss an offset that is to be read
    TIERED: {**_TIERED, "retention.ms": "-1"},
    "compacted": {**_ALL, "cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01", "delete.retention.ms": "0"},
}
SHED: Final[Mapping[str, Mapping[str, str]]] = {  # whose beginning may be gone by the time that it is read
    "shed": {**_TIERED, **_SHORT},
    "shed-locally": {**_ALL, **_SHORT},
}
COUNTED: Final = {
    "kafka_server_brokertopicmetrics_remotecopyrequests_total": "segments copied",
    "kafka_server_brokertopicmetrics_remotedeleterequests_total": "objects deleted",
    "kafkawire_compactions_total": "compactions",
}
KEYS, TOMBSTONES = 200, 0.1
VALUE_MAX_BYTES: Final = 1500
TIMES: Final = 3  # as much as a feed writes otherwise
WITHIN_S = 90.0
_SAMPLE = re.compile(r"^(\w+)(?:\{.*\})? (\S+)$", re.MULTILINE)


def broker_of(directory: Path) -> TieredKafkawire:
    """A broker whose cleaner runs often, not yet started."""
    return TieredKafkawire(directory, {"log.cleaner.backoff.ms": "200"})


def record(number: int, choice: random.Random) -> Mapping[str, Any]:
    """A record of any size, with headers or without, some without a value; half of its bytes compress."""
    half = choice.randrange(VALUE_MAX_BYTES // 2)
    value = None if choice.random() < TOMBSTONES else choice.randbytes(half) + b"-" * half
    headers = [("number", b"%d" % number), ("nothing", None)] if number % 3 == 0 else None
    return {"value": value, "key": b"key %d" % choice.randrange(KEYS), "headers": headers}


class Churn:
    """The topics and their writers. When `with` is entered, segments were copied, compacted and deleted already."""

    def __init__(self, broker: TieredKafkawire, seed: int) -> None:
        self.broker = broker
        self._before = Counter[str]()  # counts of earlier processes of the broker
        self._topics = {**KEPT, **SHED}
        self._feeds = [Feed(broker, topic, seed + at, record, TIMES) for at, topic in enumerate(self._topics)]

    def __enter__(self) -> Self:
        for topic, config in self._topics.items():
            create_topic(self.broker, topic, PARTITIONS, dict(config))
        for feed in self._feeds:
            feed.start()
        try:
            wait_until(self._is_busy, "nothing is copied, compacted, or deleted", WITHIN_S)
        except BaseException:
            self.end()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def end(self) -> None:
        """Stop the writers and wait until no transaction is open. Raises the error of a feed."""
        feeds, self._feeds = self._feeds, []
        for feed in feeds:
            feed.finish()
        wait_until(self._is_decided, "a transaction does not end", WITHIN_S)

    def kill(self) -> None:
        """Kill the broker, and start it again."""
        self._before = self.counts()
        self.broker.kill()
        self.broker.start()

    def counts(self) -> Counter[str]:
        """The counts of segments that the broker has copied, compacted and deleted."""
        with urllib.request.urlopen(f"{self.broker.http_url}/metrics") as answer:
            samples = _SAMPLE.findall(answer.read().decode())
        found = Counter(self._before)
        for name, value in samples:
            if name in COUNTED:
                found[COUNTED[name]] += int(float(value))
        return found

    def stable_ends(self, topic: str) -> list[int]:
        """The last stable offset of each partition: records below it only go by compaction and retention."""
        return ends(self.broker, topic, PARTITIONS, "read_committed")

    def _is_busy(self) -> bool:
        counts = self.counts()
        return all(counts[what] for what in COUNTED.values())

    def _is_decided(self) -> bool:
        return not any(undecided(self.broker, topic, PARTITIONS) for topic in self._topics)
