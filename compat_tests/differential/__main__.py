"""Runs all scenarios, or those whose name contains an argument, and prints the differences that no reason covers.

A full run in which every difference has a reason rewrites docs/differences.md.
"""

from __future__ import annotations

import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

from compat_tests.differential.document import Sorted, render, sort
from compat_tests.differential.explained import EXPLANATIONS
from compat_tests.differential.play import chosen, differences, play_all
from compat_tests.differential.side import Side
from compat_tests.harness.apache_kafka import ApacheKafka
from compat_tests.harness.kafkawire_broker import Kafkawire
from compat_tests.harness.requirements import ROOT

if TYPE_CHECKING:
    from compat_tests.harness.broker import Broker

DOCUMENT = ROOT / "docs" / "differences.md"
# Apache Kafka has the delay of the harness.
THEIRS = {"offsets.topic.num.partitions": "1", "transaction.state.log.num.partitions": "1"}
# Configuration of Apache Kafka by the harness, because DescribeConfigs shows the source of each value.
GIVEN = {
    "node.id": "1",
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "transaction.state.log.replication.factor": "1",
}
OURS = {**THEIRS, **GIVEN, "group.initial.rebalance.delay.ms": "0"}
GROUPS, TRANSACTIONS = 0, 1  # kinds of coordinators
READY_TIMEOUT_S = 20


def compare_brokers(directory: Path, pattern: str = "") -> Sorted:
    """Starts both brokers and plays the scenarios against both at the same time."""
    cases = chosen(pattern)
    with ApacheKafka(directory / "kafka", THEIRS) as kafka, Kafkawire(directory / "kafkawire", OURS) as ours:
        wait_for_coordinators(kafka, GROUPS, TRANSACTIONS)
        wait_for_coordinators(ours, GROUPS, TRANSACTIONS)
        brokers: tuple[Broker, ...] = (kafka, ours)
        with ThreadPoolExecutor(len(brokers)) as pool:
            theirs, own = pool.map(lambda broker: play_all(broker, cases), brokers)
    return sort(differences(theirs, own), EXPLANATIONS)


def wait_for_coordinators(broker: Broker, *kinds: int) -> None:
    """Let the broker create its internal topics before the comparison: Apache Kafka creates them some time after the
    first request. `kinds`: key types of FindCoordinator."""
    side = Side(broker)
    deadline = time.monotonic() + READY_TIMEOUT_S

    def wait(api: str, version: int, fields: dict[str, Any]) -> None:
        while side.quiet(api, version, fields)["error_code"]:
            assert time.monotonic() < deadline, f"{broker.name} finds no coordinator"
            time.sleep(0.05)

    for kind in kinds:
        wait("find_coordinator", 1, {"key": "any", "key_type": kind})
    wait("offset_fetch", 7, {"group_id": "any", "topics": None})
    wait("init_producer_id", 1, {"transactional_id": None, "transaction_timeout": 60_000})


def main() -> int:
    """Print the differences without a reason; the exit code is 1 if there are any."""
    pattern = sys.argv[1] if len(sys.argv) > 1 else ""
    if not chosen(pattern):
        raise SystemExit(f"no scenario has {pattern!r} in its name")
    with tempfile.TemporaryDirectory(prefix="differential-") as directory:
        found = compare_brokers(Path(directory), pattern)
    return conclude(found, pattern, DOCUMENT, render(found, chosen()))


def conclude(found: Sorted, pattern: str, document: Path, text: str) -> int:
    """Print the differences that no reason covers. If a full run has none, write `text` to the document. Returns the
    exit code."""
    for difference in found.unexplained:
        print(difference)
    print(f"{len(found.unexplained)} unexplained, {sum(map(len, found.explained.values()))} explained")
    if not pattern:
        for explanation in found.unused:
            print(f"no longer needed: {explanation.title}")
    if not pattern and not found.unexplained:
        document.write_text(text)
    return 1 if found.unexplained else 0


if __name__ == "__main__":
    raise SystemExit(main())
