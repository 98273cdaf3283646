"""Checkpoints: content over a stop, and files of earlier versions."""

from binascii import crc32

from hypothesis import given
from hypothesis import strategies as st

from engine.logs.recovery.checkpoints import Checkpoint, PartitionCheckpoint, decode, encode
from engine.logs.recovery.epochs import EpochStart

TOPIC_ID = bytes(range(16))
offsets = st.integers(0, 2**63 - 1)
epochs = st.lists(st.builds(EpochStart, st.integers(0, 2**31 - 1), offsets), max_size=3).map(tuple)
points = st.builds(PartitionCheckpoint, offsets, offsets, offsets, epochs, *[offsets] * 8)


@given(st.integers(0, 2**63 - 1), st.dictionaries(st.tuples(st.binary(min_size=16, max_size=16), offsets), points))
def test_encoded_checkpoint_is_decoded(journal: int, partitions: dict[tuple[bytes, int], PartitionCheckpoint]) -> None:
    checkpoint = Checkpoint(journal, partitions, has_lost=bool(journal % 2))
    assert decode(encode(checkpoint), "/data/checkpoint") == checkpoint


def test_a_version_4_checkpoint_takes_committed_compacted_offsets_as_drop_horizons() -> None:
    for compacted_to, dropped_to in ((30, 30), (70, 45)):
        line = f"{TOPIC_ID.hex()} 0 50 1 2 {compacted_to} 20 50 45 0 0 3:1,4:40"
        point = decode(written("version=4", "journal 8", line), "/data/checkpoint").partitions[TOPIC_ID, 0]
        starts = EpochStart(3, 1), EpochStart(4, 40)
        known = 50, 1, 2, starts, compacted_to, 20, 50, 45, 0, 0
        assert point == PartitionCheckpoint(*known, dropped_to, dropped_to)


def test_a_checkpoint_without_compaction_is_written_in_version_4() -> None:
    point = PartitionCheckpoint(50, 1, 2, (EpochStart(3, 1),), 0, 0, 50, 45, 0, 0)
    assert encode(Checkpoint(8, {(TOPIC_ID, 0): point})) == written(
        "version=4", "journal 8", f"{TOPIC_ID.hex()} 0 50 1 2 0 0 50 45 0 0 3:1"
    )
    for one in (point._replace(compacted_to=9), point._replace(tombstones_to=9), point._replace(markers_to=9)):
        assert encode(Checkpoint(8, {(TOPIC_ID, 0): point, (TOPIC_ID, 1): one})).startswith(b"version=5\n")


def written(*lines: str) -> bytes:
    body = "\n".join(lines).encode() + b"\n"
    return body + b"crc32=%08x\n" % crc32(body)
