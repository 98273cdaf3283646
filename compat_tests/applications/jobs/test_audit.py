"""Audits: the segments of a broker and of its tier are in order, and a single wrong bit is found wherever it is."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from compat_tests.applications.jobs.runs import ONE, Run, run
from compat_tests.applications.jobs.spoiled import fill, flip, sealed, segments_of, where
from compat_tests.applications.spark.test_transactions import COMPACT, KEYS, VALUE_SIZE_BYTES, Transactional, Writer
from compat_tests.clients.confluent.clients import create_topic, wait_until
from compat_tests.features.tiering.brokers import TieredKafkawire
from compat_tests.harness.kafkawire_broker import Kafkawire

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

SMALL = {"segment.bytes": str(1 << 20)}
TIERED = {"remote.storage.enable": "true", "retention.ms": "-1", **SMALL}


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TieredKafkawire]:
    overrides = {"log.cleaner.backoff.ms": "200"}
    with TieredKafkawire(tmp_path_factory.mktemp("audit"), overrides) as running:
        yield running


def audit(broker: Kafkawire, topic: str, *words: str, workers: int = 1) -> Run:
    return run("audit", *where(broker, topic), *words, "--workers", str(workers))


def tier(broker: TieredKafkawire) -> str:
    return f"segments=file://{broker.directory}/tier"


def test_all_copies_are_in_order_and_a_flipped_bit_is_named(broker: TieredKafkawire, topic: str) -> None:
    create_topic(broker, topic, partitions=2, config=TIERED)
    fill(broker, topic, 2, 8000)
    topic_dirs = f"*/*/0/{0:020d}-*"
    wait_until(lambda: len(list((broker.directory / "tier").glob(topic_dirs))) > 0, "nothing is copied", 60)

    def is_copied() -> bool:
        counts = audit(broker, topic, *sealed(broker)).counts
        return counts.get("objects", 0) >= 6

    wait_until(is_copied, "not all is copied", 60)
    whole = audit(broker, topic, *sealed(broker), "--records", workers=2)
    assert (whole.code, whole.report["findings"], whole.stderr) == (0, [], "")
    assert whole.counts["files"] >= 6
    assert whole.counts["fetched"] == 2
    without = audit(broker, topic)
    assert (without.code, without.counts["records"]) == (0, 8000)

    path = segments_of(broker, topic)[1]
    flip(path, 2000)
    found = audit(broker, topic, *sealed(broker))
    assert found.code == 1
    assert found.stderr.startswith("audit: 1 findings: ")
    (finding,) = found.report["findings"]
    assert (finding["kind"], finding["partition"], finding["file"]) == ("batch", 0, str(path))
    assert finding["segment"] == int(path.stem)
    assert 0 <= finding["position"] <= 2000
    flip(path, 2000)

    objects = broker.directory / "tier"
    key = finding_object(objects, int(path.stem), whole)
    alone = run("audit", "--topic", topic, "--option", tier(broker))
    assert (alone.code, alone.report["findings"]) == (0, [])
    for place, kind in ((2000, "batch"), (key.stat().st_size - 100, "trailer")):
        flip(key, place)
        found = run("audit", "--topic", topic, "--option", tier(broker), *ONE)
        assert found.code == 1
        assert {one["kind"] for one in found.report["findings"]} == {kind}
        assert {one["object"] for one in found.report["findings"]} == {str(key.relative_to(objects))}
        flip(key, place)
    key.unlink()
    found = run("audit", "--topic", topic, "--option", tier(broker), *ONE)
    assert [(one["kind"], one["segment"]) for one in found.report["findings"]] == [("unreadable", int(path.stem))]


def finding_object(tier_dir: Path, base: int, whole: Run) -> Path:
    """The object of partition 0 with that base offset."""
    assert whole.counts["objects"] > 0
    (found,) = tier_dir.glob(f"*/*/0/{base:020d}-*")
    return found


def test_transactions_are_in_order(broker: TieredKafkawire, topic: str) -> None:
    create_topic(broker, topic, partitions=2, config={"segment.ms": "100", **SMALL})
    writer = Writer(broker, topic)
    for number in range(4):
        writer.everything(number)
        found = audit(broker, topic, *sealed(broker), "--records")
        assert (found.code, found.report["findings"]) == (0, [])


def test_a_log_that_is_compacted_meanwhile_is_in_order(broker: TieredKafkawire, topic: str) -> None:
    """A log that is compacted during the audit is in order, with aborted transactions in it."""
    create_topic(broker, topic, config={**COMPACT, "delete.retention.ms": "0"})
    committed = Transactional(broker, topic, f"{topic} commits")
    aborted = Transactional(broker, topic, f"{topic} aborts")
    written = 0

    def in_order() -> int:
        found = audit(broker, topic, *sealed(broker), "--records")
        assert (found.code, found.report["findings"]) == (0, [])
        return found.counts["records"]

    for version in range(30):
        for one, end in ((committed, committed.commit), (aborted, aborted.abort)):
            one.begin()
            one.send_keys(KEYS, version, VALUE_SIZE_BYTES)
            end()
            written += len(KEYS) + 1
        if version % 10 == 0:
            in_order()
    wait_until(lambda: in_order() < written / 2, "it is not compacted", 60)


def test_an_audit_fetches_and_checks_segments_that_are_not_sealed(tmp_path: Path) -> None:
    with Kafkawire(tmp_path) as own:
        create_topic(own, "tail")
        fill(own, "tail", 1, 500)
        assert audit(own, "tail", *sealed(own)).code == 0
        flip(segments_of(own, "tail")[-1], 5000)
        found = audit(own, "tail", *sealed(own))
        assert found.code == 1
        (finding,) = found.report["findings"]
        assert (finding["kind"], finding["fetched"]) == ("batch", [0, 500])
        assert 0 <= finding["offset"] < 500


def test_a_topic_that_is_not_there_is_not_audited(broker: TieredKafkawire) -> None:
    found = audit(broker, "nowhere")
    assert (found.code, found.report["outcome"]) == (1, "stopped")
    assert "UNKNOWN_TOPIC_OR_PARTITION" in found.stderr
    assert run("audit", "--topic", "nowhere").code == 2
