"""Assignments: complete, truncated and malformed."""

from __future__ import annotations

import random

import pytest

from kafkawire.client.consumer_protocol import decode_assignment
from kafkawire.client.partitions import TopicPartition
from kafkawire.client.tests.fake_cluster import encode_assignment

ASSIGNED = encode_assignment({"orders": [2, 0], "events": [1]})


@pytest.mark.parametrize("version", [0, 1, 2, 3, 9])
def test_all_versions_begin_alike(version: int) -> None:
    data = encode_assignment({"orders": [2, 0], "events": [1]}, version) + b"more" * (version > 3)
    assert decode_assignment(data) == [("events", 1), ("orders", 0), ("orders", 2)]


def test_nothing_was_assigned() -> None:
    assert decode_assignment(b"") == []
    assert decode_assignment(encode_assignment({})) == []
    assert decode_assignment(encode_assignment({"orders": []})) == []


def test_a_truncated_assignment_decodes_to_none() -> None:
    without_user_data = len(ASSIGNED) - 4
    for size in range(1, without_user_data):
        assert decode_assignment(ASSIGNED[:size]) is None


@pytest.mark.parametrize(
    "data",
    [
        b"\xff\xff" + ASSIGNED[2:],  # version -1
        b"\0\0\xff\xff\xff\xff",  # -1 topics
        b"\0\0\0\0\0\1\xff\xff\0\0\0\0",  # a name of -1 bytes
        b"\0\0\0\0\0\1\0\1a\xff\xff\xff\xff",  # -1 partitions
        b"\0\0\0\0\0\1\0\1a\x7f\xff\xff\xff",
        b"\0\0\0\0\0\1\0\1\xff\0\0\0\0",  # a name that is not UTF-8
    ],
)
def test_an_invalid_assignment_decodes_to_none(data: bytes) -> None:
    assert decode_assignment(data) is None


def test_any_bytes_are_read_or_refused() -> None:
    chance = random.Random(1)
    for _ in range(2000):
        mutated = bytearray(ASSIGNED)
        mutated[chance.randrange(len(mutated))] = chance.randrange(256)
        found = decode_assignment(bytes(mutated))
        assert found is None or all(isinstance(one, TopicPartition) for one in found)
