"""Options as Spark passes them: texts under case-insensitive names. An option that cannot be obeyed is refused by name.

Names and meanings are those of Spark's own `kafka` source and sink, so only the format's name changes when a query
moves. Kafka's own settings, with the prefix `kafka.`, are obeyed, accepted if they have no visible effect here, or
refused by name. An unknown setting is refused too, so that it does not lack its effect silently.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from typing import Final, TypeVar

from spark_connectors.tls_options import TlsRefused, tls_of
from spark_connectors.wire import Address, Settings

KAFKA_PREFIX: Final = "kafka."
DEFAULT_PORT: Final = 9092
INT32_MAX: Final = 2**31 - 1

_T = TypeVar("_T")

# Settings of Java consumers without effect here: settings of groups and members (no group is joined), of buffers, pools
# and metrics (there are none), and of behaviour that is fixed (CRCs are checked, internal topics match no pattern).
HARMLESS: Final = frozenset(
    {
        "allow.auto.create.topics", "auto.commit.interval.ms", "auto.include.jmx.reporter", "check.crcs",
        "client.dns.lookup", "client.rack", "connections.max.idle.ms", "enable.metrics.push", "exclude.internal.topics",
        "group.id", "group.instance.id", "group.protocol", "group.remote.assignor", "heartbeat.interval.ms",
        "internal.leave.group.on.close", "max.poll.interval.ms", "max.poll.records", "metadata.max.age.ms",
        "metadata.recovery.rebootstrap.trigger.ms", "metadata.recovery.strategy", "metric.reporters",
        "metrics.num.samples", "metrics.recording.level", "metrics.sample.window.ms", "partition.assignment.strategy",
        "receive.buffer.bytes", "reconnect.backoff.max.ms", "reconnect.backoff.ms", "send.buffer.bytes",
        "session.timeout.ms", "socket.connection.setup.timeout.max.ms",
    }
)  # fmt: skip

# Reasons to refuse settings that Spark's own connector, or Kafka's clients, would accept or refuse themselves.
_REFUSED: Final[Mapping[str, str]] = {
    "auto.offset.reset": "say startingOffsets instead: where a query begins is known from its checkpoint",
    "enable.auto.commit": "a query's progress is in its checkpoint",
    "interceptor.classes": "classes of Java cannot be run here",
    "key.deserializer": "keys are bytes; cast them, or use functions of DataFrames",
    "value.deserializer": "values are bytes; cast them, or use functions of DataFrames",
    "config.providers": "classes of Java cannot be run here",
    "key.serializer": "keys are bytes or text; cast them, or use functions of DataFrames",
    "value.serializer": "values are bytes or text; cast them, or use functions of DataFrames",
    "partitioner.class": "classes of Java cannot be run here; a column partition says where a row goes",
    "transactional.id": "the sink has one of its own for each query",
    "compression.gzip.level": "the levels are the defaults of Kafka's clients",
    "compression.lz4.level": "the levels are the defaults of Kafka's clients",
    "compression.zstd.level": "the levels are the defaults of Kafka's clients",
}
_OF_TABLES: Final = "provider"  # Spark sets it for CREATE TABLE … USING
_SECURITY: Final = re.compile(r"(ssl|sasl|security)\.")


class OptionRefused(ValueError):
    """An option that is missing, has a wrong value, or cannot be obeyed. The text names it."""


class Options:
    """Options of one reader or writer. Each is read by name; `finish` refuses the others."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self._values = {name.lower(): str(value) for name, value in options.items()}
        self._names: dict[str, str] = {}

    def text(self, name: str) -> str | None:
        """The text of an option without blanks around it; None if it is not given."""
        self._names[name.lower()] = name
        value = self._values.get(name.lower())
        return None if value is None else value.strip()

    def parsed(self, name: str, parse: Callable[[str], _T], default: _T) -> _T:
        """The option, parsed by `parse`. A ValueError becomes an OptionRefused with the option's name."""
        value = self.text(name)
        if value is None:
            return default
        try:
            return parse(value)
        except ValueError as error:
            raise OptionRefused(f"option {name}: {error}") from None

    def required(self, name: str) -> str:
        value = self.text(name)
        if not value:
            raise OptionRefused(f"option {name} is required")
        return value

    def accept(self, names: Collection[str]) -> None:
        """Accept options without a check of their values."""
        for name in names:
            self.text(name)

    def finish(self) -> None:
        """Raises OptionRefused for an option that was not read."""
        for name in sorted(self._values, key=lambda one: one != _OF_TABLES):
            if name not in self._names:
                raise OptionRefused(f"option {name} {self._reason(name)}")

    def _reason(self, name: str) -> str:
        if name == _OF_TABLES:
            return (
                "is that of a table: CREATE TABLE … USING kafkawire cannot work, as Spark gives a Python source no "
                "options when it reads a table. CREATE TEMPORARY VIEW … USING kafkawire works"
            )
        setting = name.removeprefix(KAFKA_PREFIX)
        if name.startswith(KAFKA_PREFIX) and setting in _REFUSED:
            return f"cannot be obeyed: {_REFUSED[setting]}"
        if name.startswith(KAFKA_PREFIX) and _SECURITY.match(setting):
            return "cannot be obeyed: there is TLS with PEM files, and no authentication but by certificates, yet"
        near = difflib.get_close_matches(name, self._names, 1)
        return f"is not known, so nothing would obey it{f'; is {self._names[near[0]]} meant?' if near else ''}"


def bootstrap_of(options: Options) -> tuple[Address, ...]:
    """Addresses of kafka.bootstrap.servers. Raises OptionRefused."""
    name = f"{KAFKA_PREFIX}bootstrap.servers"
    parts = [part.strip() for part in options.required(name).split(",")]
    try:
        return tuple(_address(part) for part in parts if part)
    except ValueError as error:
        raise OptionRefused(f"option {name}: {error}") from None


def _address(text: str) -> Address:
    text = text.rpartition("://")[2]  # Kafka's clients also accept the address of a listener
    host, colon, port = text.rpartition(":")
    if not colon or text.endswith("]"):
        host, port = text, str(DEFAULT_PORT)
    host = host.removeprefix("[").removesuffix("]")
    if not host or not port.isdecimal() or not 0 < int(port) < 65536:
        raise ValueError(f"not host:port: {text}")
    return Address(host, int(port))


def settings_of(
    options: Options, harmless: Collection[str] = HARMLESS, patience: str = "default.api.timeout.ms"
) -> Settings:
    """Client settings for requests to brokers. `patience` names the setting of the overall timeout; settings in
    `harmless` are accepted and ignored. Raises OptionRefused.
    """
    try:
        tls = tls_of(options)
    except TlsRefused as error:
        raise OptionRefused(str(error)) from None
    options.accept([f"{KAFKA_PREFIX}{name}" for name in harmless])
    default = Settings()
    seconds = {
        "connect_timeout_s": "socket.connection.setup.timeout.ms",
        "request_timeout_s": "request.timeout.ms",
        "patience_s": patience,
        "retry_first_s": "retry.backoff.ms",
        "retry_max_s": "retry.backoff.max.ms",
    }
    values = {
        field: options.parsed(f"{KAFKA_PREFIX}{name}", milliseconds_as_s, getattr(default, field))
        for field, name in seconds.items()
    }
    client_id = options.text(f"{KAFKA_PREFIX}client.id") or default.client_id
    return replace(default, client_id=client_id, tls=tls, **values)


def milliseconds_as_s(text: str) -> float:
    """Parse a number of milliseconds above zero to seconds. Raises ValueError."""
    return positive_int32(text) / 1000


def whole_number(text: str, least: int = 0, most: int | None = None) -> int:
    """Parse a whole number from `least` to `most`. Raises ValueError."""
    try:
        value = int(text)
    except ValueError:
        raise ValueError(f"{text!r} is no whole number") from None
    if value < least:
        raise ValueError(f"{value} is below {least}")
    if most is not None and value > most:
        raise ValueError(f"{value} is above {most}")
    return value


def int32(text: str) -> int:
    """Parse a whole number from 0 to the maximum of an int32, the type of most Kafka settings. Raises ValueError."""
    return whole_number(text, 0, INT32_MAX)


def positive_int32(text: str) -> int:
    """Parse a whole number from 1 to the maximum of an int32. Raises ValueError."""
    return whole_number(text, 1, INT32_MAX)


def positive(text: str) -> int:
    """Parse a whole number above zero. Raises ValueError."""
    return whole_number(text, 1)


def truth(text: str) -> bool:
    """Parse a boolean as Scala's toBoolean does. Raises ValueError."""
    if text.lower() not in ("true", "false"):
        raise ValueError(f"{text!r} is neither true nor false")
    return text.lower() == "true"


_UNITS_S: Final = {
    "us": 1e-6, "ms": 1e-3, "": 1e-3, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86400.0,
}  # fmt: skip


def duration_s(text: str) -> float:
    """Parse a time as Spark writes it: `15m`, `20s`, `500ms`; a number alone is milliseconds. Raises ValueError."""
    found = re.fullmatch(r"(\d+)\s*([a-z]*)", text.lower())
    if found is None or found[2] not in _UNITS_S:
        raise ValueError(f"{text!r} is no time: a whole number and one of us, ms, s, m, min, h, d")
    return int(found[1]) * _UNITS_S[found[2]]
