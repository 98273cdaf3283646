"""Recorded requests of clients are decoded without loss: encoded again, they are the same bytes."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from kafkawire.handlers import API_TABLE
from kafkawire.messages.metadata import MetadataRequest
from kafkawire.requests.headers import decode_request_header, encode_request
from testkit import recorded_requests as recordings
from testkit.recorded_requests import FRAMES, Recorded, keep, recorded

APIS = {api.key: api for api in API_TABLE}
CLIENTS = sorted({row.client for row in recorded()})
PRODUCE, FETCH, OFFSET_COMMIT, HEARTBEAT = 0, 1, 8, 12
SIZE_MAX = 150 << 10  # of all files together
SURPLUS = {("confluent-kafka-2.16.1", MetadataRequest.API_KEY): b"\1\0\0"}  # docs/decisions/0002: bytes behind a body


def left_over(row: Recorded) -> bytes:
    """Bytes of a frame behind the re-encoded request."""
    header, start = decode_request_header(row.frame)
    request = APIS[row.api_key].request.decode(row.frame, row.version, start)
    again = encode_request(request, row.version, header.correlation_id, header.client_id)
    assert row.frame.startswith(again), (row.client, row.api_key, row.version, row.frame.hex())
    return row.frame[len(again) :]


@pytest.mark.parametrize("client", CLIENTS)
def test_each_request_is_decoded_and_comes_back_the_same(client: str) -> None:
    for row in recorded():
        if row.client == client:
            rest = left_over(row)
            assert not rest or rest == SURPLUS[row.client, row.api_key], (row.api_key, row.version, rest.hex())


@pytest.mark.parametrize("client", CLIENTS)
def test_a_client_is_seen_at_all_that_is_hot(client: str) -> None:
    seen = Counter(row.api_key for row in recorded(PRODUCE, FETCH, OFFSET_COMMIT, HEARTBEAT) if row.client == client)
    assert min(seen[key] for key in (PRODUCE, FETCH, OFFSET_COMMIT, HEARTBEAT)) > 0, seen


def test_no_correlation_id_is_there_twice_on_a_connection() -> None:
    """Correlation ids need not rise: Java's client takes some before it connects."""
    seen = Counter(
        (row.client, row.connection, decode_request_header(row.frame)[0].correlation_id) for row in recorded()
    )
    assert set(seen.values()) == {1}


def test_the_files_are_small() -> None:
    assert sum(path.stat().st_size for path in FRAMES.iterdir()) < SIZE_MAX


def test_saved_frames_are_read_with_connection_and_version(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recordings, "FRAMES", tmp_path)
    rows = [(1, bytes(8)), (2, b"\x00\x03\x00\x0d" + bytes(9)), (1, bytes(12))]
    keep("client-1.0", rows)
    assert list(recorded()) == [Recorded("client-1.0", connection, frame) for connection, frame in rows]
    assert [(row.connection, row.version) for row in recorded(3)] == [(2, 13)]
