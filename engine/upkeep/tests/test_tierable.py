"""Input of the remote tier: sealed segments, checked, and the state beside their files."""

import pytest
import trio
from crc32c import crc32c

from engine.api import Marker, OffsetSpec, Outcome
from engine.batches.batch import Record, build_batch
from engine.errors import CorruptMessage, StorageError
from engine.logs.producers.snapshot import decode_snapshot, read_snapshot, snapshot_offsets
from engine.logs.producers.walk import Extent
from engine.logs.recovery.truncation_plan import secure_producers
from engine.logs.segments.footer import decode as decode_footer
from engine.logs.segments.footer import encode as encode_footer
from engine.logs.segments.footer import footer_name
from engine.logs.segments.segment import segment_name
from engine.logs.transactions.aborted import decode_aborted
from engine.tier import INDEX_ROW, TierableLog
from engine.upkeep.sealed_listing import SealedListing
from testkit.cold_logs import COUNT, DIRECTORY, EVERYTHING, Broker
from testkit.logs import NOW_MS, append, read_all
from testkit.wrong_timestamps import stored_as_sent, with_max_timestamp

TRANSACTIONAL = 0x10


async def tierable(broker: Broker) -> TierableLog:
    """The partition for the tier, after finished segments are sealed."""
    await trio.sleep(1)
    [found] = broker.store.tierable()
    return found


async def test_sealed_segments_may_be_copied() -> None:
    broker = Broker()
    async with broker.life() as log:
        await broker.fill()
        found = await tierable(broker)
        assert found.partition == log.partition
        segments = log.log.segments
        assert len(segments) > 4
        assert found.to_copy() == [(one.base_offset, one.end_offset) for one in segments[:-1]]
        size_bytes = sum(one.size_bytes for one in segments[:-1])
        assert found.copy_lag() == (len(segments) - 1, size_bytes, 0, segments[-1].base_offset)
        found.note_tiered(segments[2].base_offset)
        assert found.tiered_to == segments[2].base_offset
        assert found.to_copy() == [(one.base_offset, one.end_offset) for one in segments[2:-1]]
        assert found.copy_lag().first == segments[2].base_offset
        found.note_tiered(segments[-1].base_offset)
        assert found.copy_lag() == (0, 0, 0, 0)


async def test_an_unsealed_or_damaged_segment_and_later_segments_are_not_copied_to_the_tier() -> None:
    broker = Broker()
    async with broker.life() as log:
        await broker.fill()
        found, segments = await tierable(broker), log.log.segments
        segments[2].is_sealed = False
        assert [base for base, _ in found.to_copy()] == [one.base_offset for one in segments[:2]]
        segments[2].is_sealed = segments[1].is_damaged = True
        assert [base for base, _ in found.to_copy()] == [0]


async def test_a_copy_for_the_tier_has_the_segment_its_footer_facts_and_epochs() -> None:
    broker = Broker()
    async with broker.life() as log:
        await broker.fill()
        found, segment = await tierable(broker), log.log.segments[1]
        copied = await found.copy(segment.base_offset)
        content = broker.filesystem.content(f"{DIRECTORY}/{segment_name(segment.base_offset)}")[: segment.size_bytes]
        assert copied.file.read_at(0, 10_000) == content
        assert copied.checksum == crc32c(content)
        assert copied.footer == broker.filesystem.content(f"{DIRECTORY}/{footer_name(segment.base_offset)}")
        facts = copied.facts
        assert facts[:4] == (
            segment.base_offset,
            segment.end_offset,
            segment.size_bytes,
            facts.end_offset - facts.base_offset,
        )
        assert (facts.first_timestamp_ms, facts.max_timestamp_ms) == (
            NOW_MS + 10 * facts.base_offset,
            NOW_MS + 10 * (facts.end_offset - 1),
        )
        assert facts.digest == decode_footer(copied.footer, "footer").digest
        assert not facts.has_aborted
        assert copied.epochs == ((0, 0),)
        rows = list(INDEX_ROW.iter_unpack(copied.index_rows))
        assert rows[0] == (facts.base_offset, 0, NOW_MS + 10 * facts.base_offset)
        assert await found.facts_of(segment.base_offset) == facts


async def test_a_copy_of_a_segment_of_version_0_1_has_the_times_of_its_records() -> None:
    broker = Broker()
    async with broker.life() as log:
        with stored_as_sent():
            for number in range(COUNT):
                sent = build_batch(
                    [Record(b"key", b"value", NOW_MS + number), Record(b"key", b"", NOW_MS + 9 + number)]
                )
                await log.append(with_max_timestamp(sent), acks=-1).wait()
        found, segment = await tierable(broker), log.log.segments[1]
        facts, first = (await found.copy(segment.base_offset)).facts, segment.base_offset // 2
        last = (facts.end_offset - 1) // 2
        assert (facts.first_timestamp_ms, facts.max_timestamp_ms) == (NOW_MS + 9 + first, NOW_MS + 9 + last)
        assert await found.facts_of(segment.base_offset) == facts
        [listed] = await SealedListing(log).sealed_segments(facts.base_offset, facts.end_offset, 1)
        assert listed.max_timestamp_ms == facts.max_timestamp_ms


async def test_producers_at_the_end_of_each_segment_go_with_it() -> None:
    """Most of their snapshots are gone: only the newest two are kept."""
    broker = Broker()
    async with broker.life():
        await broker.fill()
        found = await tierable(broker)
        found.note_tiered(0)
        for base, end in found.to_copy():
            table = decode_snapshot((await found.copy(base)).producers, end).producers
            last = {producer_id: producer.last_offset for producer_id, producer in table}
            assert last == {7 + offset % 2: offset for offset in range(max(0, end - 2), end)}
        assert set(snapshot_offsets(broker.filesystem, DIRECTORY)) >= {end for _, end in found.to_copy()}


async def test_a_log_without_producers_has_nothing_of_them() -> None:
    broker = Broker()
    async with broker.life() as log:
        for _ in range(COUNT):
            await append(log, b"x" * 50)
        found = await tierable(broker)
        assert {(await found.copy(base)).producers for base, _ in found.to_copy()} == {b""}


async def test_an_empty_producer_snapshot_shows_that_there_was_no_producer() -> None:
    """An empty snapshot says so, and is as good as another one.

    It does so even while all of the log might matter: a checkpoint does not say from where on, until the newest batches
    are durable.
    """
    broker = Broker()
    async with broker.life() as log:
        for _ in range(COUNT):
            await append(log, b"x" * 50)
        await broker.drop(3)
        first = Extent.of(log.log.segments[0])
        end_offset = log.log.segments[0].end_offset
        secure_producers(broker.filesystem, DIRECTORY, [first], end_offset, needed_from=0)
        assert not list(read_snapshot(broker.filesystem, DIRECTORY, end_offset).producers)
        secure_producers(broker.filesystem, DIRECTORY, [first], end_offset, needed_from=0)


async def test_aborted_transactions_go_with_their_segment() -> None:
    broker = Broker()
    async with broker.life() as log:
        records = [Record(b"k", b"x" * 120, NOW_MS)]
        for number in range(4):
            batch = build_batch(records, producer=(9, 0, number), attributes=TRANSACTIONAL)
            await log.append(memoryview(batch), acks=-1).wait()
            outcome = Outcome.ABORT if number % 2 else Outcome.COMMIT
            await log.end_transaction(Marker(9, 0, 0, outcome)).wait()
        await append(log, b"x" * 200)
        await append(log, b"x" * 200)
        found = await tierable(broker)
        aborted = []
        for base, end in found.to_copy():
            copied = await found.copy(base)
            assert copied.facts.has_aborted == bool(copied.aborted)
            assert (await found.facts_of(base)).has_aborted == bool(copied.aborted)
            aborted += decode_aborted(copied.aborted, base, end)
        assert [(one.first_offset, one.last_offset) for one in aborted] == [(2, 3), (6, 7)]


async def test_a_damaged_segment_is_not_copied_to_the_tier() -> None:
    broker = Broker()
    async with broker.life() as log:
        await broker.fill()
        found, segment = await tierable(broker), log.log.segments[1]
        broker.filesystem.open(f"{DIRECTORY}/{segment_name(segment.base_offset)}").write_at([b"rot"], 100)
        with pytest.raises(CorruptMessage):
            await found.copy(segment.base_offset)
        assert "not copied to the tier" in broker.problems[-1]
        assert [base for base, _ in found.to_copy()] == [0]


async def test_a_sound_segment_whose_footer_has_another_digest_is_not_copied_to_the_tier() -> None:
    """The batches have right CRCs and epochs, and are in order; the footer has another digest."""
    broker = Broker()
    async with broker.life() as log:
        await broker.fill()
        found, segment = await tierable(broker), log.log.segments[1]
        name = f"{DIRECTORY}/{footer_name(segment.base_offset)}"
        footer = decode_footer(broker.filesystem.content(name), name)
        file = broker.filesystem.open(name)
        file.truncate(0)
        file.write_at([encode_footer(footer._replace(digest=bytes(32)))], 0)
        with pytest.raises(CorruptMessage, match="differs from its footer"):
            await found.copy(segment.base_offset)


async def test_a_segment_with_a_damaged_footer_is_not_copied_to_the_tier() -> None:
    broker = Broker()
    async with broker.life() as log:
        await broker.fill()
        found, segment = await tierable(broker), log.log.segments[1]
        broker.filesystem.open(f"{DIRECTORY}/{footer_name(segment.base_offset)}").write_at([b"rot"], 10)
        for ask in (found.copy, found.facts_of):
            with pytest.raises(CorruptMessage, match="its footer"):
                await ask(segment.base_offset)
            await trio.sleep(1)  # it is read, and has another one
            broker.filesystem.open(f"{DIRECTORY}/{footer_name(segment.base_offset)}").write_at([b"rot"], 10)


async def test_an_offset_that_begins_no_sealed_segment_is_not_copied_to_the_tier() -> None:
    broker = Broker()
    async with broker.life() as log:
        await broker.fill()
        found, segments = await tierable(broker), list(log.log.segments)
        for base_offset in (segments[-1].base_offset, segments[1].base_offset + 1):
            with pytest.raises(StorageError, match="no sealed segment"):
                await found.copy(base_offset)
        await log.delete_records(segments[2].base_offset)
        with pytest.raises(StorageError, match="no sealed segment"):
            await found.facts_of(segments[1].base_offset)


async def test_a_segment_removed_during_its_copy_is_not_logged_as_damaged(monkeypatch: pytest.MonkeyPatch) -> None:
    broker = Broker()
    async with broker.life() as log:
        await broker.fill()
        found, segments = await tierable(broker), list(log.log.segments)

        async def delete(_read_bytes: int) -> None:
            await log.delete_records(segments[2].base_offset)

        monkeypatch.setattr("engine.upkeep.tierable._yield_to_loop", delete)
        with pytest.raises(StorageError, match="no sealed segment"):
            await found.copy(segments[1].base_offset)
        assert not broker.problems


async def test_a_file_that_is_missing_costs_no_log_dir() -> None:
    broker = Broker()
    async with broker.life() as log:
        await broker.fill()
        found, segment = await tierable(broker), log.log.segments[1]
        log.log.aborted.know([segment.base_offset])  # and there is no such file
        with pytest.raises(CorruptMessage, match="is gone"):
            await found.copy(segment.base_offset)
        assert log.log_dir.disk.offline_reason is None


async def test_cold_segments_are_learned_from_tier_facts_after_their_files_are_gone() -> None:
    broker = Broker()
    async with broker.life() as log:
        await broker.fill()
        found = await tierable(broker)
        facts = {base: await found.facts_of(base) for base, _ in found.to_copy()}
        everything = await read_all(log)
        offset = await broker.drop(3)
        assert found.local_start_offset == offset
        assert found.log_start_offset == 0
    broker.lose_index()
    async with broker.life() as log:
        found = await tierable(broker)
        knew_cold = found.knows_cold
        assert not found.know_cold({})
        assert found.know_cold({base: one for base, one in facts.items() if base < offset})
        assert (knew_cold, found.knows_cold) == (False, True)
        assert await read_all(log) == everything
        assert (await log.offset_for_timestamp(OffsetSpec.EARLIEST, EVERYTHING)).offset == 0
