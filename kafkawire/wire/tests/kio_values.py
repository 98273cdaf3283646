"""Seeded values for kio's message classes, and the same values for kafkawire's: the base of the oracle tests."""

from __future__ import annotations

import dataclasses
import importlib
import io
import random
import types
import typing
import uuid
from datetime import UTC, datetime, timedelta
from typing import Any, Literal

from kio.schema.errors import ErrorCode
from kio.schema.index import schema_name_map
from kio.serial import entity_writer
from kio.static.constants import EntityType

Side = Literal[EntityType.request, EntityType.response]

STRINGS = ("", "a", "tøpic-é-日本", "x" * 126, "x" * 127, "x" * 128, "x" * 300)
ELEMENTS_MAX = 10_000  # of one message: nested arrays of 127 would exceed the decoder's limit (RULES W1)
RENAMED = {("TxnOffsetCommitRequest", "generation_id"): "generation_id_or_member_epoch"}  # by Apache Kafka 4.4
RANGES = {"int8": 8, "int16": 16, "int32": 32, "int64": 64}


def kio_class(api: str, version: int, kind: Side) -> type[Any]:
    """kio's class of one message version."""
    module, name = schema_name_map[api][version][kind].split(":")
    found: type[Any] = getattr(importlib.import_module(module), name)
    return found


def known_versions(api: str) -> range:
    """The versions of an API that kio knows; Apache Kafka 4.4.0 may have newer ones."""
    return range(min(schema_name_map[api]), max(schema_name_map[api]) + 1)


def oracle_bytes(value: Any) -> bytes:
    """A kio value encoded by kio."""
    with io.BytesIO() as buffer:
        entity_writer(type(value))(buffer, value)
        return buffer.getvalue()


class Maker:
    """Maker of instances: `style` is "least" (defaults, empty, null) or "random"."""

    def __init__(self, seed: str, style: str) -> None:
        self.random = random.Random(seed)
        self.style = style
        self.elements_left = ELEMENTS_MAX

    def make(self, cls: type[Any]) -> Any:
        """Make an instance of a kio class."""
        hints = typing.get_type_hints(cls)
        values = {}
        for field in dataclasses.fields(cls):
            if self.style == "least" and field.default is not dataclasses.MISSING:
                continue
            values[field.name] = self.value(field, hints[field.name])
        return cls(**values)

    def value(self, field: dataclasses.Field[Any], hint: Any) -> Any:
        if isinstance(hint, types.UnionType) and type(None) in hint.__args__:
            (inner,) = (one for one in hint.__args__ if one is not type(None))
            if self.style == "least" or self.random.random() < 0.25:
                return None
            hint = inner
        if typing.get_origin(hint) is tuple:
            count = 0 if self.style == "least" else self.random.choice((0, 1, 2, 3))
            if self.random.random() < 0.03:
                count = 127
            count = min(count, self.elements_left)
            self.elements_left -= count
            return tuple(self.scalar(field, self.element(hint)) for _ in range(count))
        return self.scalar(field, hint)

    @staticmethod
    def element(hint: Any) -> Any:
        inner = typing.get_args(hint)[0]
        if isinstance(inner, types.UnionType):
            (inner,) = (one for one in inner.__args__ if one is not type(None))
        return inner

    def scalar(self, field: dataclasses.Field[Any], hint: Any) -> Any:
        if dataclasses.is_dataclass(hint):
            assert isinstance(hint, type)
            return self.make(hint)
        kind = field.metadata["kafka_type"]
        draw = self.random
        if kind in RANGES:
            return draw.choice((-1, 0, 1, draw.randrange(-(2 ** (RANGES[kind] - 1)), 2 ** (RANGES[kind] - 1))))
        makers: dict[str, Any] = {
            "uint16": lambda: draw.randrange(2**16),
            "uint32": lambda: draw.randrange(2**32),
            "float64": lambda: draw.uniform(-1e9, 1e9),
            "bool": lambda: draw.random() < 0.5,
            "string": lambda: draw.choice(STRINGS),
            "bytes": lambda: draw.randbytes(draw.choice((0, 1, 126, 127, 200))),
            "records": lambda: draw.randbytes(draw.choice((0, 1, 126, 127, 200))),
            "uuid": lambda: uuid.UUID(int=draw.randrange(1, 2**128)),
            "error_code": lambda: draw.choice(list(ErrorCode)),
            "timedelta_i32": lambda: timedelta(milliseconds=draw.randrange(2**31)),
            "timedelta_i64": lambda: timedelta(milliseconds=draw.randrange(2**40)),
            "datetime_i64": lambda: datetime.fromtimestamp(draw.randrange(2**40) / 1000, UTC),
        }
        return makers[kind]()


def as_ours(value: Any) -> Any:
    """A kio value as a plain wire value: structs become dicts with kafkawire's field names."""
    if dataclasses.is_dataclass(value):
        kind = type(value).__name__
        return {
            RENAMED.get((kind, field.name), our_name(field)): as_ours(getattr(value, field.name))
            for field in dataclasses.fields(value)
        }
    if isinstance(value, tuple):
        return [as_ours(one) for one in value]
    if isinstance(value, timedelta):
        return value // timedelta(milliseconds=1)
    if isinstance(value, datetime):
        return round(value.timestamp() * 1000)
    if isinstance(value, uuid.UUID):
        return value.bytes
    return int(value) if isinstance(value, ErrorCode) else value


def our_name(field: dataclasses.Field[Any]) -> str:
    kind = field.metadata.get("kafka_type", "")
    timed = kind.startswith(("timedelta", "datetime")) and not field.name.endswith("_ms")
    return field.name + "_ms" if timed else field.name


def matches(ours: Any, theirs: Any) -> bool:
    """Whether our value has all fields of theirs. None equals the zero uuid, no time, or a default tagged struct."""
    if isinstance(theirs, dict):
        return ours is None or all(matches(getattr(ours, name), value) for name, value in theirs.items())
    if isinstance(theirs, list):
        return len(ours) == len(theirs) and all(map(matches, ours, theirs))
    if theirs is None:
        return ours is None or ours in (bytes(16), -1)
    return bool(ours == theirs)
