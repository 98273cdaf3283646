"""Dispatch: the bytes that reach a handler, and the answers to others."""

from __future__ import annotations

from collections.abc import Sequence
from struct import pack
from typing import Any

import pytest
import trio

from kafkawire.handlers import API_TABLE
from kafkawire.messages.api_versions import ApiVersionsRequest
from kafkawire.messages.metadata import MetadataRequest
from kafkawire.requests.errors import ErrorCode
from kafkawire.requests.headers import decode_response, encode_request
from kafkawire.tests.answers import answer
from kafkawire.tests.harness import join, open_handlers
from kafkawire.wire.connection import ProtocolViolation

API_VERSIONS = 18
# APIS.md's ranges: key, advertised from, served from, to.
SERVED = {
    0: (0, 3, 13),
    1: (4, 4, 18),
    2: (1, 1, 11),
    3: (0, 0, 13),
    8: (2, 2, 10),
    9: (1, 1, 10),
    10: (0, 0, 6),
    11: (0, 0, 9),
    12: (0, 0, 4),
    13: (0, 0, 5),
    14: (0, 0, 5),
    15: (0, 0, 6),
    16: (0, 0, 5),
    17: (0, 0, 1),
    18: (0, 0, 5),
    19: (2, 2, 7),
    20: (1, 1, 6),
    21: (0, 0, 2),
    22: (0, 0, 5),
    23: (2, 2, 4),
    24: (0, 0, 5),
    25: (0, 0, 4),
    26: (0, 0, 5),
    27: (1, 1, 2),
    28: (0, 0, 6),
    32: (1, 1, 4),
    33: (0, 0, 2),
    35: (1, 1, 5),
    36: (0, 0, 2),
    37: (0, 0, 3),
    42: (0, 0, 3),
    43: (0, 0, 2),
    44: (0, 0, 1),
    45: (0, 0, 1),
    46: (0, 0, 0),
    47: (0, 0, 0),
    57: (0, 0, 2),
    60: (0, 0, 2),
    61: (0, 0, 0),
    64: (0, 0, 0),
    65: (0, 0, 0),
    66: (0, 0, 2),
    74: (0, 0, 1),
    75: (0, 0, 0),
}
GROUP_APIS = {
    "join_group",
    "sync_group",
    "heartbeat",
    "leave_group",
    "offset_commit",
    "offset_fetch",
    "offset_delete",
    "describe_groups",
    "list_groups",
    "delete_groups",
}
TRANSACTION_APIS = {
    "add_partitions_to_txn",
    "add_offsets_to_txn",
    "end_txn",
    "write_txn_markers",
    "txn_offset_commit",
    "describe_transactions",
    "list_transactions",
}


def frame_of(request: Any, version: int) -> bytearray:
    return bytearray(encode_request(request, version, 77, "c"))


def read(segments: Sequence[Any], key: int, version: int) -> tuple[int, Any]:
    return decode_response(join(segments), key, version)


def test_api_table_serves_the_decided_versions_and_stages() -> None:
    assert {api.key: (api.min_version, api.served_min, api.max_version) for api in API_TABLE} == SERVED
    assert {api.name for api in API_TABLE if api.two_stage} == {"produce"} | GROUP_APIS | TRANSACTION_APIS
    assert all(api.key == api.request.API_KEY for api in API_TABLE)


@pytest.mark.parametrize("version", range(5))
async def test_the_list_of_apis_in_every_version(version: int) -> None:
    async with open_handlers() as broker:
        request = ApiVersionsRequest(client_software_name="kcat", client_software_version="1.7.1")
        response = await broker.ask(request, version)
        assert response.error_code == 0
        assert [(row.api_key, row.min_version, row.max_version) for row in response.api_keys] == [
            (key, advertised, newest) for key, (advertised, _, newest) in SERVED.items()
        ]
        if version >= 3:
            assert broker.connection.client_software_name == "kcat"
            assert broker.connection.client_software_version == "1.7.1"


@pytest.mark.parametrize(
    ("name", "version"), [("", "1"), ("a", ""), ("-a", "1"), ("a b", "1"), ("a", "1\n"), ("ä", "1")]
)
async def test_a_client_that_has_no_proper_name(name: str, version: str) -> None:
    async with open_handlers() as broker:
        request = ApiVersionsRequest(client_software_name=name, client_software_version=version)
        response = await broker.ask(request, 3)
        assert (response.error_code, response.api_keys) == (42, [])
        assert (response.finalized_features, response.finalized_features_epoch) == ([], -1)
        assert broker.connection.client_software_name == "unknown"


@pytest.mark.parametrize(
    ("cluster_id", "node_id", "code"),
    [
        (None, -1, ErrorCode.NONE),
        ("ours", 1, ErrorCode.NONE),
        ("ours", 2, ErrorCode.REBOOTSTRAP_REQUIRED),
        ("other", 1, ErrorCode.REBOOTSTRAP_REQUIRED),
        (None, 1, ErrorCode.INVALID_REQUEST),
        ("ours", -1, ErrorCode.INVALID_REQUEST),
    ],
)
async def test_a_client_that_wants_another_broker_is_sent_to_its_bootstrap_servers(
    cluster_id: str | None, node_id: int, code: ErrorCode
) -> None:
    async with open_handlers() as broker:
        ours = broker.interfaces.cluster.image.cluster_id
        request = ApiVersionsRequest(
            client_software_name="c",
            client_software_version="1",
            cluster_id=ours if cluster_id == "ours" else cluster_id,
            node_id=broker.interfaces.config.node_id if node_id == 1 else node_id,
        )
        response = await broker.ask(request, 5)
        assert (response.error_code, bool(response.api_keys)) == (code, code is ErrorCode.NONE)


@pytest.mark.parametrize("version", [6, 99, 32_767, -1])
@pytest.mark.parametrize("rest", [b"", b"\xff\xff", b"whatever comes in the future"])
async def test_an_unknown_version_of_api_versions_is_answered_in_version_0(version: int, rest: bytes) -> None:
    async with open_handlers() as broker:
        frame = bytearray(pack(">hhi", API_VERSIONS, version, 4_711) + rest)
        dispatched = broker.dispatcher.dispatch(frame, broker.connection, trio.current_time())
        segments = await answer(dispatched)
        assert segments is not None
        correlation_id, response = read(segments, API_VERSIONS, 0)
        assert (correlation_id, response.error_code) == (4_711, 35)
        assert [(row.api_key, row.min_version, row.max_version) for row in response.api_keys] == [(18, 0, 5)]


GOOD = frame_of(MetadataRequest(topics=[]), 9)
VIOLATIONS: list[tuple[str, bytes]] = [
    ("empty", b""),
    ("shorter than a header", bytes(7)),
    ("unknown API", pack(">hhih", 99, 0, 1, -1)),
    ("negative API", pack(">hhih", -1, 0, 1, -1)),
    ("an API of a later step", pack(">hhih", 68, 0, 1, -1)),
    ("an inter-broker API", pack(">hhih", 56, 0, 1, -1)),
    ("Produce 0, advertised but not served", pack(">hhih", 0, 0, 1, -1)),
    ("Produce 2", pack(">hhih", 0, 2, 1, -1)),
    ("Produce above", pack(">hhih", 0, 14, 1, -1)),
    ("Fetch below", pack(">hhih", 1, 3, 1, -1)),
    ("negative version", pack(">hhih", 3, -1, 1, -1)),
    ("client id longer than the frame", pack(">hhih", 3, 1, 1, 100)),
    ("negative client id length", pack(">hhih", 3, 1, 1, -2)),
    ("client id is no UTF-8", pack(">hhih", 3, 1, 1, 2) + b"\xff\xfe" + bytes(4)),
    ("no body", pack(">hhih", 3, 9, 1, -1)),
    ("cut", bytes(GOOD[:-1])),
    ("negative count", pack(">hhihi", 3, 1, 1, -1, -2)),
    ("count beyond the frame", pack(">hhihi", 3, 1, 1, -1, 2**31 - 1)),
]


@pytest.mark.parametrize("data", [row[1] for row in VIOLATIONS], ids=[row[0] for row in VIOLATIONS])
async def test_frame_that_is_no_valid_request_raises_a_protocol_violation(data: bytes) -> None:
    async with open_handlers() as broker:
        with pytest.raises(ProtocolViolation):
            broker.dispatcher.dispatch(bytearray(data), broker.connection, trio.current_time())
        assert broker.interfaces.metrics.protocol_violations == 1
        assert (await broker.ask(MetadataRequest(topics=[]), 9)).brokers, "others are served as before"


async def test_an_unknown_tagged_field_changes_nothing() -> None:
    async with open_handlers() as broker:
        assert GOOD[-1] == 0, "no tagged fields"
        tagged = bytearray(GOOD[:-1] + b"\x01\x63\x02hi")
        segments = await answer(broker.dispatcher.dispatch(tagged, broker.connection, trio.current_time()))
        assert segments is not None
        assert read(segments, 3, 9)[1].brokers


async def test_requests_are_counted_with_their_latencies() -> None:
    async with open_handlers() as broker:
        for _ in range(3):
            await broker.ask(MetadataRequest(topics=[]), 9)
        counters = broker.interfaces.metrics.by_api[3]
        assert (counters.name, counters.requests, counters.failures) == ("metadata", 3, 0)
        assert sum(counters.latency.in_bucket) == 3
        assert counters.request_size_bytes > 3 * len(GOOD)
