"""Frames that no client sends: sizes, headers, bodies; most must close the connection and nothing else."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any

from compat_tests.differential.catalogue import VERSIONS, case
from compat_tests.harness.batches import Batch
from compat_tests.harness.kio_codec import API_KEYS, encode_body, encode_request, header, is_flexible

if TYPE_CHECKING:
    from collections.abc import Callable

    from compat_tests.differential.side import Side

TOPIC = "frames"


def sample(side: Side, api: str, version: int) -> dict[str, Any]:
    """A request with something in every array, so that a truncation can hit each part of it.

    It changes nothing: if one broker takes a frame that the other refuses, later scenarios must not notice.
    """
    topic_id = side.create_topic(TOPIC)
    both = {"name": TOPIC, "topic": TOPIC, "topic_id": topic_id}
    produce = {"topic_data": [{**both, "partition_data": [{"index": 9, "records": Batch().encode()}]}], "acks": -1}
    fetch_row = {"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1 << 20}
    new_topic = {"name": f"{TOPIC}-{api}-{version}", "num_partitions": 1, "replication_factor": 1}
    by_name = {**both, "topic_id": bytes(16)}
    member = {"group_id": TOPIC, "member_id": "nobody", "group_instance_id": None}
    kind = {"protocol_type": "consumer", "protocol_name": "range"}
    no_partition = {**both, "partitions": [{"partition_index": 9}], "partition_indexes": [9]}
    producer = {"transactional_id": TOPIC, "producer_id": 7}
    flushed = {"name": "flush.ms", "value": "1", "config_operation": 0}
    no_change = {
        "resources": [{"resource_type": 2, "resource_name": TOPIC, "configs": [flushed]}],
        "validate_only": True,
    }
    samples: dict[str, dict[str, Any]] = {
        "produce": {"timeout": 1_000, **produce},
        "fetch": {"replica_id": -1, "max_bytes": 1 << 20, "topics": [{**both, "partitions": [fetch_row]}]},
        "list_offsets": {
            "replica_id": -1,
            "topics": [{**both, "partitions": [{"partition_index": 0, "timestamp": -1}]}],
        },
        "metadata": {"topics": [by_name]},
        "find_coordinator": {"key": "compat", "coordinator_keys": ["compat"]},
        "api_versions": {"client_software_name": "compat", "client_software_version": "1"},
        "create_topics": {"topics": [new_topic], "timeout": 10_000, "validate_only": True},
        "delete_topics": {"topics": [{"name": "nowhere"}], "topic_names": ["nowhere"], "timeout": 10_000},
        "delete_records": {"topics": [no_partition], "timeout": 1_000},
        "init_producer_id": {"transactional_id": None, "producer_id": -1, "producer_epoch": -1},
        "offset_for_leader_epoch": {"replica_id": -1, "topics": [{**both, "partitions": [{"partition": 9}]}]},
        "join_group": {**member, **kind, "reason": None, "protocols": [{"name": "range", "metadata": b"m"}]},
        "sync_group": {**member, **kind, "assignments": [{"member_id": "nobody", "assignment": b"a"}]},
        "heartbeat": member,
        "leave_group": {**member, "members": [{**member, "reason": None}]},
        "offset_commit": {**member, "topics": [no_partition]},
        "offset_fetch": {"group_id": TOPIC, "topics": [no_partition], "groups": [{**member, "topics": [no_partition]}]},
        "offset_delete": {"group_id": TOPIC, "topics": [no_partition]},
        "describe_groups": {"groups": [TOPIC]},
        "list_groups": {"states_filter": ["Dead"], "types_filter": ["classic"]},
        "delete_groups": {"groups_names": [TOPIC]},
        "describe_cluster": {},
        "create_partitions": {"topics": [{"name": TOPIC, "count": 0, "assignments": None}]},
        "describe_configs": {
            "resources": [{"resource_type": 2, "resource_name": TOPIC, "configuration_keys": [TOPIC]}]
        },
        "alter_configs": no_change,
        "incremental_alter_configs": no_change,
        "list_config_resources": {"resource_types": [4]},
        "describe_log_dirs": {"topics": [{"topic": TOPIC, "partitions": [7]}]},
        "describe_producers": {"topics": [{"name": TOPIC, "partition_indexes": [7]}]},
        "describe_topic_partitions": {"topics": [{"name": TOPIC}], "cursor": None},
        "add_partitions_to_txn": {
            "v3_and_below_transactional_id": TOPIC,
            "v3_and_below_topics": [{"name": TOPIC, "partitions": [9]}],
            "transactions": [{**producer, "topics": [{"name": TOPIC, "partitions": [9]}]}],
        },
        "add_offsets_to_txn": {**producer, "group_id": TOPIC},
        "end_txn": producer,
        "write_txn_markers": {"markers": [{"topics": [{"name": TOPIC, "partition_indexes": [9]}]}]},
        "txn_offset_commit": {**member, **producer, "topics": [no_partition]},
        "describe_transactions": {"transactional_ids": [TOPIC]},
        "list_transactions": {"state_filters": ["Dead"], "producer_id_filters": [7]},
        "elect_leaders": {"topic_partitions": [{"topic": TOPIC, "partitions": [9]}], "timeout": 10_000},
        "alter_partition_reassignments": {
            "topics": [{"name": TOPIC, "partitions": [{"partition_index": 9, "replicas": [1]}]}],
            "timeout": 10_000,
        },
        "list_partition_reassignments": {"topics": [{"name": TOPIC, "partition_indexes": [9]}], "timeout": 10_000},
        "unregister_broker": {"broker_id": 77},
        "update_features": {"feature_updates": [{"feature": TOPIC, "max_version_level": 1}]},
        "sasl_handshake": {"mechanism": "SCRAM-SHA-256"},
        "sasl_authenticate": {"auth_bytes": b"n,,n=compat,r=nonce"},
    }
    return samples[api]


@case("api_versions", (0,))
def sizes(side: Side, version: int) -> None:
    """Frames whose announced size differs from their bytes; an announced size alone must cost nothing."""
    for size in (-1, -(2**31), 0, 1, 7, 104_857_601, 2**31 - 1):
        side.connection.send_bytes(struct.pack(">i", size) + bytes(max(0, min(size, 7))))
        side.read("api_versions", version, label=f"size {size}")
    frame = encode_request("api_versions", version, {})
    for cut in range(8):
        side.connection.send_frame(frame[:cut])
        side.read("api_versions", version, label=f"a header cut to {cut}")


@case("api_versions", (0,))
def a_frame_in_pieces(side: Side, version: int) -> None:
    """A frame sent byte by byte is answered."""
    frame = encode_request("api_versions", version, {})
    for byte in struct.pack(">i", len(frame)) + frame:
        side.connection.send_bytes(bytes([byte]))
    side.read("api_versions", version)


@case("api_versions", (0,))
def unknown_api_keys(side: Side, version: int) -> None:
    for key in (-1, 4, 5, 6, 7, 52, 53, 58, 93, 1_000, 32_767):
        side.ask_bytes("api_versions", version, header(key, 0, 1, flexible=False), label=f"key {key}")


@case("api_versions", (0,))
def unsupported_versions(side: Side, version: int) -> None:
    for api, served in VERSIONS.items():
        for asked in (-1, served[0] - 1, served[-1] + 1, 32_767):
            # The body is that of the nearest version; no broker should read it.
            body = encode_body(api, min(max(asked, served[0]), served[-1]), sample(side, api, served[-1]))
            head = header(API_KEYS[api], asked, 1, flexible=asked > served[-1])
            side.ask_bytes("api_versions", version, head + body, label=f"{api} {asked}")


def each_version(play: Callable[[Side, str, int], None]) -> None:
    """Registers a scenario once for every API, in all its versions."""

    def register(api: str) -> None:
        def run(side: Side, version: int) -> None:
            play(side, api, version)

        run.__name__ = play.__name__
        case(api)(run)

    for api in VERSIONS:
        register(api)


@each_version
def truncated(side: Side, api: str, version: int) -> None:
    """Frames truncated at the end, in the middle and behind the header."""
    frame = encode_request(api, version, sample(side, api, version))
    head_size_bytes = len(header(API_KEYS[api], version, 1, flexible=is_flexible(api, version)))
    for cut in sorted({len(frame) - 1, (head_size_bytes + len(frame)) // 2, head_size_bytes}):
        if cut < len(frame):
            side.ask_bytes(api, version, frame[:cut], label=f"{len(frame) - cut} bytes short")


@each_version
def trailing(side: Side, api: str, version: int) -> None:
    frame = encode_request(api, version, sample(side, api, version))
    side.ask_bytes(api, version, frame + b"\x00", label="one byte more")
    side.ask_bytes(api, version, frame + bytes(100), label="a hundred bytes more")


@each_version
def client_ids(side: Side, api: str, version: int) -> None:
    """Client ids: null and empty ones are accepted, wrong lengths and bytes that are no text are not."""
    body = encode_body(api, version, sample(side, api, version))
    tags = b"\x00" if is_flexible(api, version) else b""
    start = struct.pack(">hhi", API_KEYS[api], version, 1)
    for label, client_id in (
        ("null", b"\xff\xff"),
        ("empty", b"\x00\x00"),
        ("length -2", b"\xff\xfe"),
        ("length 32767", b"\x7f\xff"),
        ("not UTF-8", b"\x00\x02\xc3\x28"),
    ):
        side.ask_bytes(api, version, start + client_id + tags + body, label=f"client id: {label}")


@each_version
def tagged_fields(side: Side, api: str, version: int) -> None:
    """Unknown tagged fields are skipped, in the header and at the end of the body."""
    if not is_flexible(api, version):
        return
    body = encode_body(api, version, sample(side, api, version))
    start = header(API_KEYS[api], version, 1, flexible=False)
    unknown = b"\x01\x63\x03abc"  # one field, tag 99, three bytes
    two_same = b"\x02\x63\x01a\x63\x01a"
    too_long = b"\x01\x63\x7fabc"
    for label, tags in (("unknown", unknown), ("one twice", two_same), ("too long", too_long)):
        side.ask_bytes(api, version, start + tags + body, label=f"in the header: {label}")
        side.ask_bytes(api, version, start + b"\x00" + body[:-1] + tags, label=f"in the body: {label}")
    side.ask_bytes(api, version, start + b"\xff\xff\xff\xff\x0f" + body, label="in the header: 4 billion")


@case("metadata")
def array_counts(side: Side, version: int) -> None:
    """Wrong counts of the one array of a Metadata request."""
    flexible = is_flexible("metadata", version)
    start = header(API_KEYS["metadata"], version, 1, flexible=flexible)
    for count in (-2, -(2**31), 2, 1_000_000, 2**31 - 1):
        encoded = unsigned_varint(count + 1 & 0xFFFFFFFF) if flexible else struct.pack(">i", count)
        side.ask_bytes("metadata", version, start + encoded + bytes(40), label=f"count {count}")
    if flexible:
        side.ask_bytes("metadata", version, start + b"\xff" * 10 + bytes(40), label="a varint of ten bytes")
        side.ask_bytes("metadata", version, start + b"\x81\x80\x80\x80\x00" + bytes(40), label="a padded varint")


@case("metadata")
def strings(side: Side, version: int) -> None:
    """Topic names that are no text, or null."""
    body = encode_body("metadata", version, {"topics": [{"name": "abcd"}], "allow_auto_topic_creation": False})
    start = header(API_KEYS["metadata"], version, 1, flexible=is_flexible("metadata", version))
    for label, name in (
        ("an overlong slash", b"\xc0\xafcd"),
        ("a surrogate", b"\xed\xa0\x80d"),
        ("a lone continuation", b"ab\x80d"),
        ("an unfinished character", b"abc\xe2"),
    ):
        side.ask_bytes("metadata", version, start + body.replace(b"abcd", name), label=label)
    name, null = (b"\x05abcd", b"\x00") if is_flexible("metadata", version) else (b"\x00\x04abcd", b"\xff\xff")
    assert name in body
    side.ask_bytes("metadata", version, start + body.replace(name, null), label="name: null")


def unsigned_varint(value: int) -> bytes:
    encoded = bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)
