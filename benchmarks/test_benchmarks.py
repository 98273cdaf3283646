"""Each benchmark runs once at toy size, so that it still works when its figures are needed; nothing is timed."""

from __future__ import annotations

from benchmarks import wire_load
from compat_tests.harness.requirements import need_kafka_jars


def test_wire_load() -> None:
    need_kafka_jars()
    wire_load.main(["--toy"])
