"""Hand-made buckets, sound ones and one for each anomaly: a checker must be able to find each anomaly."""

from __future__ import annotations

from collections.abc import Callable
from struct import pack_into

import pytest
from crc32c import crc32c
from msgspec.structs import replace

from engine.batches.batch import Record, build_batch
from engine.testing.simulated_disk import SimulatedFileSystem
from engine.tier import CopiedSegment, SegmentFacts
from kafkawire.tests.simulation.plan import plan
from kafkawire.tests.simulation.tier_checker import TieredLog, check_bucket
from kafkawire.tests.simulation.tier_plan import FIRST_WITH_TIER, StoreState, has_tier, plan_tier
from kafkawire.tests.simulation.transaction_plan import plan_transactions
from tiering.manifest.codec import encode_manifest, encode_page
from tiering.manifest.manifest import Doomed, Intent, Manifest, SegmentEntry
from tiering.names import Place
from tiering.segment_object import make_object

PLACE = Place("lake/", "cluster", b"topic-id-one----", 0)
RECORDS = {offset: (1, offset) for offset in range(9)}
ENDS = (3, 6, 9)
EPOCHS = ((0, 0), (2, 5))
Change = Callable[[dict[str, bytes], Manifest], Manifest]


def batch(offset: int, epoch: int) -> bytes:
    made = bytearray(build_batch([Record(None, b"1:%d:x" % offset, 1000 + offset)]))
    pack_into(">q", made, 0, offset)
    pack_into(">i", made, 12, epoch)
    return bytes(made)


def segment(base: int, end: int) -> tuple[SegmentEntry, bytes]:
    data = b"".join(batch(offset, 2 if offset >= 5 else 0) for offset in range(base, end))
    file = SimulatedFileSystem().open("/segment", create=True)
    file.write_at([data], 0)
    facts = SegmentFacts(base, end, len(data), end - base, 1000 + base, 999 + end, 0, bytes(16), has_aborted=False)
    made = make_object(CopiedSegment(facts, file, crc32c(data), b"footer", b"", b"", EPOCHS, b""))
    content = b"".join(made.content.slices())
    entry = SegmentEntry(
        base=base,
        end=end,
        generation=0,
        digest=made.digest,
        records_digest="00",
        size_bytes=len(data),
        object_size_bytes=len(content),
        crc32c=crc32c(content),
        records=end - base,
        first_timestamp_ms=1000 + base,
        max_timestamp_ms=999 + end,
        leader_epoch=0,
        has_aborted=False,
        late_put_until_ms=0,
    )
    return entry, content


SEGMENTS = [segment(base, end) for base, end in zip((0, *ENDS), ENDS, strict=False)]
SOUND = Manifest(version=1, epochs=EPOCHS, entries=tuple(entry for entry, _ in SEGMENTS))
LOG = TieredLog("orders-0", PLACE, 0, 6, 9, RECORDS)


def found(change: Change = lambda _objects, manifest: manifest, log: TieredLog = LOG) -> list[str]:
    """The anomalies of a sound bucket that is changed a little."""
    objects = {PLACE.segment(entry): content for entry, content in SEGMENTS}
    manifest = change(objects, SOUND)
    objects[PLACE.manifest(1)] = encode_manifest(manifest)
    return [one.kind for one in check_bucket(objects, [log], ["lake/probe/", "lake/cluster/gone/"])]


def lose(objects: dict[str, bytes], manifest: Manifest) -> Manifest:
    del objects[PLACE.segment(manifest.entries[1])]
    return manifest


def tear(objects: dict[str, bytes], manifest: Manifest) -> Manifest:
    key = PLACE.segment(manifest.entries[1])
    objects[key] = objects[key][:50]
    return manifest


def leave(objects: dict[str, bytes], manifest: Manifest) -> Manifest:
    objects[PLACE.segment(Intent(9, 12, 0, "other"))] = b"x"
    return manifest


def page(objects: dict[str, bytes], manifest: Manifest) -> Manifest:
    one, objects_data = encode_page(manifest.entries[:2], 0)
    objects[PLACE.page(one)] = objects_data
    return replace(manifest, pages=(one,), entries=manifest.entries[2:])


def lose_page(objects: dict[str, bytes], manifest: Manifest) -> Manifest:
    changed = page(objects, manifest)
    del objects[PLACE.page(changed.pages[0])]
    return changed


def keep_others(objects: dict[str, bytes], manifest: Manifest) -> Manifest:
    objects |= {"lake/probe/1": b"", "lake/cluster/gone/0/x": b"", PLACE.collected(0): b"", PLACE.manifest(0): b""}
    return manifest


@pytest.mark.parametrize("change", [lambda _, manifest: manifest, page, keep_others])
def test_sound_buckets_have_no_anomalies(change: Change) -> None:
    assert found(change) == []


@pytest.mark.parametrize(
    ("kind", "change"),
    [
        ("lost object", lose),
        ("wrong object", tear),
        ("orphan", leave),
        ("damaged tier", lose_page),
        ("lost epoch", lambda _, manifest: replace(manifest, epochs=((2, 5),))),
        ("not deleted", lambda _, one: replace(one, doomed=(Doomed(0, segment=Intent(9, 12, 0, "other")),))),
        ("not copied", lambda _, manifest: replace(manifest, entries=manifest.entries[:1])),
        ("not copied", lambda _, manifest: replace(manifest, entries=manifest.entries[1:])),
        ("another tier", lambda _, manifest: replace(manifest, log_start=2)),
    ],
)
def test_each_anomaly_of_a_bucket_is_found(kind: str, change: Change) -> None:
    assert kind in found(change)


def test_nothing_stays_below_the_log_start() -> None:
    log = LOG._replace(log_start=3, records={offset: one for offset, one in RECORDS.items() if offset >= 3})
    assert found(lambda _, one: replace(one, log_start=3), log) == ["below the log start"]
    assert found(lambda _, one: replace(one, log_start=3, entries=one.entries[1:]), log)[1:] == []


@pytest.mark.parametrize("records", [RECORDS | {4: (9, 9)}, {key: one for key, one in RECORDS.items() if key != 4}])
def test_segment_that_differs_from_the_consumed_records_is_found(records: dict[int, tuple[int, int]]) -> None:
    assert found(log=LOG._replace(records=records)) == ["wrong segment"]


def test_segment_may_have_more_records_than_a_read_committed_consumer_saw() -> None:
    committed = {key: one for key, one in RECORDS.items() if key != 4}
    assert found(log=LOG._replace(records=committed, is_whole=False)) == []


def test_many_plans_have_a_tier_in_all_weathers_and_others_are_as_they_were() -> None:
    plans = {}
    for seed in [*range(20), *range(FIRST_WITH_TIER, FIRST_WITH_TIER + 100)]:
        topics = [*plan(seed).topics, *plan_transactions(seed).topics]
        plans[seed] = plan_tier(seed, topics)
        assert all(plans[seed].is_on or plans[seed].of(one) == one for one in topics)
    tiers = [one for one in plans.values() if one.is_on]
    assert [seed for seed, one in plans.items() if one.is_on] == [seed for seed in plans if has_tier(seed)]
    assert len(tiers) == 100
    assert {state for one in tiers for state in one.store_states} == set(StoreState)
    assert sum(not one.topics for one in tiers) < 5  # where all are compacted
