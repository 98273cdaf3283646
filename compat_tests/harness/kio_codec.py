"""Requests from plain dictionaries and replies to plain dictionaries, for any version, with kio.

kio is generated from Kafka's own schemas and shares no code with kafkawire's codec: a mistake there cannot hide here. A
field that a version does not have is left out, so that one dictionary serves all versions; a field that is not given
has Kafka's default, or zero. Replies come from brokers of the tests: kio's reader is not safe for other bytes. Versions
that are newer than kio are left to `newer_codec`.
"""

from __future__ import annotations

import dataclasses
import datetime as dt
import functools
import io
import struct
import sys
import types
import typing
import uuid
from typing import TYPE_CHECKING, Any

from kio.index import UnknownEntity, load_payload_module
from kio.schema.errors import ErrorCode
from kio.serial import entity_reader, entity_writer
from kio.static.constants import EntityType

from compat_tests.harness import newer_codec

if TYPE_CHECKING:
    from collections.abc import Mapping

Fields = typing.Mapping[str, Any]
Kind = typing.Literal[EntityType.request, EntityType.response]

API_KEYS = {
    "produce": 0,
    "fetch": 1,
    "list_offsets": 2,
    "metadata": 3,
    "offset_commit": 8,
    "offset_fetch": 9,
    "find_coordinator": 10,
    "join_group": 11,
    "heartbeat": 12,
    "leave_group": 13,
    "sync_group": 14,
    "describe_groups": 15,
    "list_groups": 16,
    "sasl_handshake": 17,
    "api_versions": 18,
    "create_topics": 19,
    "delete_topics": 20,
    "delete_records": 21,
    "init_producer_id": 22,
    "offset_for_leader_epoch": 23,
    "add_partitions_to_txn": 24,
    "add_offsets_to_txn": 25,
    "end_txn": 26,
    "write_txn_markers": 27,
    "txn_offset_commit": 28,
    "describe_configs": 32,
    "alter_configs": 33,
    "describe_log_dirs": 35,
    "sasl_authenticate": 36,
    "create_partitions": 37,
    "delete_groups": 42,
    "elect_leaders": 43,
    "incremental_alter_configs": 44,
    "alter_partition_reassignments": 45,
    "list_partition_reassignments": 46,
    "offset_delete": 47,
    "update_features": 57,
    "describe_cluster": 60,
    "describe_producers": 61,
    "unregister_broker": 64,
    "describe_transactions": 65,
    "list_transactions": 66,
    "list_config_resources": 74,
    "describe_topic_partitions": 75,
}
CLIENT_ID = b"compat"
ZERO_OF_TYPE = {"string": "", "bytes": b"", "records": b"", "bool": False, "float64": 0.0, "uuid": None}


@functools.cache
def _class(api: str, version: int, kind: Kind) -> type[Any]:
    module = load_payload_module(API_KEYS[api], version, kind)
    if (api, kind) == ("describe_transactions", EntityType.response):
        _read_as_number(module.TransactionState, "transaction_start_time")
    return next(
        each for each in vars(module).values() if isinstance(each, type) and getattr(each, "__type__", None) is kind
    )


def _read_as_number(entity: type[Any], name: str) -> None:
    """Read times as numbers: kio refuses negative ones, and Kafka's "none" is -1."""
    (field,) = (each for each in dataclasses.fields(entity) if each.name == name)
    field.metadata = types.MappingProxyType({"kafka_type": "int64"})


@functools.cache
def _is_known(api: str, version: int) -> bool:
    """Whether kio knows this version."""
    try:
        load_payload_module(API_KEYS[api], version, EntityType.request)
    except UnknownEntity:
        return False
    return True


def request_class(api: str, version: int) -> type[Any]:
    return _class(api, version, EntityType.request)


def response_class(api: str, version: int) -> type[Any]:
    return _class(api, version, EntityType.response)


@functools.cache
def _hints(module_name: str, name: str) -> dict[str, Any]:
    return typing.get_type_hints(getattr(sys.modules[module_name], name))


def _types(entity: type[Any]) -> dict[str, Any]:
    return _hints(entity.__module__, entity.__name__)


def build(entity: type[Any], fields: Fields) -> object:
    """An instance of a kio class. Fields that the class does not have are ignored; missing ones get their default, or
    zero."""
    values: dict[str, object] = {}
    for each in dataclasses.fields(entity):
        if each.name in fields:
            values[each.name] = _convert(_types(entity)[each.name], each.metadata, fields[each.name])
        elif each.default is dataclasses.MISSING and each.default_factory is dataclasses.MISSING:
            values[each.name] = _zero(_types(entity)[each.name], each.metadata)
    return entity(**values)


def _convert(hint: Any, metadata: Mapping[str, Any], value: object) -> object:
    if isinstance(value, (list, tuple)):
        inner = _element(hint)
        return tuple(build(inner, each) if isinstance(each, dict) else _scalar(metadata, each) for each in value)
    if isinstance(value, dict):
        return build(_without_none(hint), value)
    return _scalar(metadata, value)


def _scalar(metadata: Mapping[str, Any], value: object) -> object:
    kind = str(metadata.get("kafka_type", ""))
    if kind.startswith("timedelta") and isinstance(value, int):
        return dt.timedelta(milliseconds=value)
    if kind.startswith("datetime") and isinstance(value, int):
        return dt.datetime.fromtimestamp(value / 1000, dt.UTC)
    if kind == "error_code" and isinstance(value, int):
        return ErrorCode(value)
    if kind == "uuid" and isinstance(value, bytes):
        return uuid.UUID(bytes=value)
    return value


def _zero(hint: Any, metadata: Mapping[str, Any]) -> object:
    if _is_array(hint):
        return ()
    return _scalar(metadata, ZERO_OF_TYPE.get(metadata.get("kafka_type", ""), 0))


def _is_array(hint: Any) -> bool:
    return typing.get_origin(_without_none(hint)) is tuple


def _element(hint: Any) -> Any:
    return typing.get_args(_without_none(hint))[0]


def _without_none(hint: Any) -> Any:
    if isinstance(hint, type) or typing.get_origin(hint) is tuple:
        return hint
    return next((each for each in typing.get_args(hint) if each is not type(None)), hint)


def is_flexible(api: str, version: int) -> bool:
    if not _is_known(api, version):
        return newer_codec.is_flexible(api, version)
    return bool(request_class(api, version).__flexible__)


def header(api_key: int, version: int, correlation_id: int, *, flexible: bool) -> bytes:
    """A request header; flexible ones end in an empty tag section."""
    start = struct.pack(f">hhih{len(CLIENT_ID)}s", api_key, version, correlation_id, len(CLIENT_ID), CLIENT_ID)
    return start + (b"\x00" if flexible else b"")


def encode_body(api: str, version: int, fields: Fields) -> bytes:
    if not _is_known(api, version):
        return newer_codec.encode_body(api, version, fields)
    entity = request_class(api, version)
    buffer = io.BytesIO()
    entity_writer(entity)(buffer, build(entity, fields))
    return buffer.getvalue()


def encode_request(api: str, version: int, fields: Fields, correlation_id: int = 1) -> bytes:
    """A whole frame without its size."""
    head = header(API_KEYS[api], version, correlation_id, flexible=is_flexible(api, version))
    return head + encode_body(api, version, fields)


def encode_response(api: str, version: int, fields: Fields, correlation_id: int) -> bytes:
    """A whole reply without its size, as a broker would send it."""
    head = struct.pack(">i", correlation_id) + (b"\x00" if _has_tags(api, version) else b"")
    if not _is_known(api, version):
        return head + newer_codec.encode_body(api, version, fields, "Response")
    entity = response_class(api, version)
    buffer = io.BytesIO()
    buffer.write(head)
    entity_writer(entity)(buffer, build(entity, fields))
    return buffer.getvalue()


def _has_tags(api: str, version: int) -> bool:
    """Whether the header of a response has a tag section. That of ApiVersions never has one: the client does not know
    the version yet."""
    return is_flexible(api, version) and api != "api_versions"


def decode_request(frame: bytes) -> tuple[str, int, dict[str, Any]]:
    """API, version and fields of a whole frame without its size."""
    api_key, version, _, client_id_size = struct.unpack_from(">hhih", frame)
    api = next(name for name, key in API_KEYS.items() if key == api_key)
    start = 10 + max(client_id_size, 0) + (1 if is_flexible(api, version) else 0)
    if not _is_known(api, version):
        return api, version, newer_codec.decode_body(api, version, frame, start, "Request")
    found, _ = entity_reader(request_class(api, version))(frame, start)
    return api, version, to_plain(found)


def decode_response(api: str, version: int, frame: bytes) -> dict[str, Any]:
    """A reply as a dictionary, with `correlation_id` among its fields. Raises AssertionError if bytes are left over."""
    start = 5 if _has_tags(api, version) else 4
    correlation_id = int.from_bytes(frame[:4], "big")
    if not _is_known(api, version):
        return {"correlation_id": correlation_id, **newer_codec.decode_body(api, version, frame, start)}
    found, size = entity_reader(response_class(api, version))(frame, start)
    assert start + size == len(frame), f"{len(frame) - start - size} bytes behind the {api} {version} response"
    return {"correlation_id": correlation_id, **to_plain(found)}


def to_plain(entity: Any) -> Any:
    """Dictionaries, lists, ints, strings and bytes; durations and times in milliseconds, ids as bytes."""
    if dataclasses.is_dataclass(entity):
        return {each.name: to_plain(getattr(entity, each.name)) for each in dataclasses.fields(entity)}
    if isinstance(entity, tuple):
        return [to_plain(each) for each in entity]
    if isinstance(entity, dt.timedelta):
        return entity // dt.timedelta(milliseconds=1)
    if isinstance(entity, dt.datetime):
        return round(entity.timestamp() * 1000)
    if isinstance(entity, uuid.UUID):
        return entity.bytes
    if isinstance(entity, int) and not isinstance(entity, bool):
        return int(entity)
    return entity
