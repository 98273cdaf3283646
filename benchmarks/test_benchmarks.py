"""Each benchmark runs once at toy size, so that it still works when its figures are needed; nothing is timed.

Only the wire load meets Apache Kafka here: what the others do to it is the same code.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from benchmarks import (
    administration,
    cold_seek,
    compaction,
    connections,
    groups,
    growth,
    key_lookup,
    loop_lag,
    partitions,
    quickstart,
    start,
    wire_load,
)
from compat_tests.harness.requirements import need_java, need_kafka_jars

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


def test_wire_load() -> None:
    need_kafka_jars()
    wire_load.main(["--toy"])


@pytest.mark.parametrize(
    "main",
    [
        administration.main,
        cold_seek.main,
        compaction.main,
        connections.main,
        groups.main,
        growth.main,
        key_lookup.main,
        loop_lag.main,
        partitions.main,
        quickstart.main,
        start.main,
    ],
    ids=[
        "administration",
        "cold seek",
        "compaction",
        "connections",
        "groups",
        "growth",
        "key lookup",
        "loop lag",
        "partitions",
        "quickstart",
        "start",
    ],
)
def test_against_kafkawire_alone(main: Callable[[Sequence[str]], None]) -> None:
    need_java()
    main(["--toy"])
