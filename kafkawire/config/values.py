"""Readers of the values of keys: a `Reader` has Kafka's type of the key, and parses text into a value or refuses it.

A value is shown as in Kafka: normalised by its type, however it was written. This module knows no key.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from enum import Enum, IntEnum
from pathlib import Path
from typing import Any, NamedTuple

INT_MAX = 2**31 - 1
LONG_MAX = 2**63 - 1

_HOST_AND_PORT = re.compile(r"\[?([0-9A-Za-z%._:-]*)\]?:([0-9]{1,5})")  # Kafka's URI_PARSE_REGEXP


class ConfigError(Exception):
    """A configuration that prevents the start. The text is the line for the user; `key` is the key concerned."""

    def __init__(self, text: str, key: str = "") -> None:
        super().__init__(one_line(text))
        self.key = key


def one_line(text: str) -> str:
    """Escape unprintable characters: keys and values may have line feeds."""
    return "".join(char if char.isprintable() else repr(char)[1:-1] for char in text)


class ConfigType(IntEnum):
    """Kafka's DescribeConfigsResponse.ConfigType."""

    BOOLEAN = 1
    STRING = 2
    INT = 3
    SHORT = 4
    LONG = 5
    DOUBLE = 6
    LIST = 7
    CLASS = 8
    PASSWORD = 9


class StoreUrl(NamedTuple):
    """Place of objects: a `bucket` of an S3 server, or a directory of this machine.

    All object keys begin with `root`, which is empty or ends with a slash.
    """

    is_s3: bool
    bucket: str
    root: str

    def __str__(self) -> str:
        return f"s3://{self.bucket}/{self.root}".rstrip("/") if self.is_s3 else f"file://{self.bucket}"


@dataclass(frozen=True, slots=True)
class Listener:
    """A listener: `NAME://host:port`. The host is empty for every address; with port 0 the system chooses."""

    name: str
    host: str
    port: int


class DailyWindow(NamedTuple):
    """Time of day from one minute to another, without the last one. It may span midnight."""

    begin_minute: int
    end_minute: int

    def holds_at(self, now_ms: int) -> bool:
        """Whether the time, in the machine's local time zone, is in the window."""
        moment = datetime.fromtimestamp(now_ms / 1000)  # the window is configured in local time
        minute = moment.hour * 60 + moment.minute
        if self.begin_minute < self.end_minute:
            return self.begin_minute <= minute < self.end_minute
        return minute >= self.begin_minute or minute < self.end_minute


@dataclass(frozen=True, slots=True)
class Reader:
    """Reads the values of a key. `parse` raises ValueError with the requirement on values."""

    type: ConfigType
    parse: Callable[[str], Any]

    def __call__(self, value: str) -> Any:
        return self.parse(value.strip())

    def shown(self, value: str) -> str:
        """A valid value in Kafka's form (ConfigDef.convertToString)."""
        text = value.strip()
        match self.type:
            case ConfigType.BOOLEAN:
                return text.lower()
            case ConfigType.INT | ConfigType.SHORT | ConfigType.LONG:
                return str(int(text)) if text else text
            case ConfigType.DOUBLE:
                return _java_double(float(text))
            case ConfigType.LIST:
                return ",".join(elements(text))
        return text


def elements(value: str) -> list[str]:
    """Elements of a list with commas."""
    return [part.strip() for part in value.split(",") if part.strip()]


def _text(value: str) -> str:
    return value


def _boolean(value: str) -> bool:
    if value.lower() not in ("true", "false"):
        raise ValueError("must be true or false")
    return value.lower() == "true"


text = Reader(ConfigType.STRING, _text)
class_name = Reader(ConfigType.CLASS, _text)
password = Reader(ConfigType.PASSWORD, _text)
boolean = Reader(ConfigType.BOOLEAN, _boolean)


def integer(low: int = -INT_MAX - 1, high: int = INT_MAX) -> Reader:
    """A whole number within [low, high]."""
    return Reader(ConfigType.INT, _within(low, high))


def integer_or(other: int, low: int, high: int) -> Reader:
    """A whole number within [low, high], or `other`."""

    def parse(value: str) -> int:
        number = _whole_number(value)
        if number != other and not low <= number <= high:
            raise ValueError(f"must be between {low} and {high}, or {other}")
        return number

    return Reader(ConfigType.INT, parse)


def short(low: int) -> Reader:
    """A whole number within [low, 32767]."""
    return Reader(ConfigType.SHORT, _within(low, 2**15 - 1))


def long(low: int = -LONG_MAX - 1) -> Reader:
    """A whole number from `low` on."""
    return Reader(ConfigType.LONG, _within(low, LONG_MAX))


def long_or_unlimited(low: int) -> Reader:
    """A whole number from `low` on; -1, as in Kafka, for no limit."""

    def parse(value: str) -> int:
        number = _whole_number(value)
        if number == -1:
            return LONG_MAX
        if not low <= number <= LONG_MAX:
            raise ValueError(f"must be between {low} and {LONG_MAX}, or -1 for no limit")
        return number

    return Reader(ConfigType.LONG, parse)


def _within(low: int, high: int) -> Callable[[str], int]:
    def parse(value: str) -> int:
        number = _whole_number(value)
        if not low <= number <= high:
            raise ValueError(f"must be between {low} and {high}")
        return number

    return parse


def _whole_number(value: str) -> int:
    """Parse like Java's parseLong; Python's int would accept 1_000, too."""
    if re.fullmatch("[+-]?[0-9]{1,19}", value) is None:
        raise ValueError("must be a whole number")
    return int(value)


def no_zero(reader: Reader) -> Reader:
    """The reader without zero: nothing can be retained for no time."""

    def parse(value: str) -> Any:
        if not (found := reader.parse(value)):
            raise ValueError("must be unlimited (-1) or, equal or greater than 1")
        return found

    return Reader(reader.type, parse)


def optional(reader: Reader) -> Reader:
    """The reader, or None for an empty value."""
    return Reader(reader.type, lambda value: reader.parse(value) if value else None)


def ratio(*, is_zero_allowed: bool = False) -> Reader:
    """A number up to 1, and above 0 or from 0 on."""

    def parse(value: str) -> float:
        number = _number(value)
        if not 0 <= number <= 1 or not (number or is_zero_allowed):
            raise ValueError(f"must be {'between 0 and 1' if is_zero_allowed else 'above 0 and at most 1'}")
        return number

    return Reader(ConfigType.DOUBLE, parse)


def above_zero() -> Reader:
    """A finite number above 0. Kafka accepts NaN and infinity as well."""

    def parse(value: str) -> float:
        number = _number(value)
        if not 0 < number < math.inf:
            raise ValueError("must be above 0 and finite")
        return number

    return Reader(ConfigType.DOUBLE, parse)


def _number(value: str) -> float:
    """Parse like Java's parseDouble; Python's float would accept 1_000 and digits of other scripts, too."""
    try:
        if value.isascii() and "_" not in value:
            return float(value)
    except ValueError:
        pass
    raise ValueError("must be a number")


def _java_double(number: float) -> str:
    """The number in the form of Java's Double.toString."""
    if number == 0 or 1e-3 <= abs(number) < 1e7:
        return str(number)
    if not math.isfinite(number):
        return str(number).replace("inf", "Infinity").replace("nan", "NaN")
    sign, digits, exponent = Decimal(repr(number)).as_tuple()
    assert isinstance(exponent, int)
    figures = "".join(map(str, digits))
    fraction = figures[1:].rstrip("0") or "0"
    return f"{'-' if sign else ''}{figures[0]}.{fraction}E{len(digits) + exponent - 1}"


def choice(*allowed: str) -> Reader:
    """A reader of these words."""

    def parse(value: str) -> str:
        if value not in allowed:
            raise ValueError(f"must be one of {', '.join(allowed)}")
        return value

    return Reader(ConfigType.STRING, parse)


def member(allowed: type[Enum]) -> Reader:
    """A member of an enumeration, by its value."""
    words = choice(*(one.value for one in allowed))
    return Reader(ConfigType.STRING, lambda value: allowed(words.parse(value)))


def members(allowed: type[Enum]) -> Reader:
    """A list of members of an enumeration, each once; it may be empty (Kafka's ValidList.in)."""
    word = member(allowed)

    def parse(value: str) -> frozenset[Enum]:
        found = [word.parse(part) for part in elements(value)]
        if len(set(found)) != len(found):
            raise ValueError("names a value twice")
        return frozenset(found)

    return Reader(ConfigType.LIST, parse)


def _path(value: str) -> Path:
    if "\0" in value:
        raise ValueError("no name of a file holds a zero byte")
    return Path(value)


def _directories(value: str) -> tuple[Path, ...]:
    found = tuple(map(_path, elements(value)))
    if not found:
        raise ValueError("names no directory")
    if len(set(found)) != len(found):
        raise ValueError("names a directory twice")
    return found


def _advertised_listeners(value: str) -> tuple[Listener, ...]:
    found = tuple(map(_listener, elements(value)))
    if len({one.name for one in found}) != len(found):
        raise ValueError("a listener name is used twice")
    return found


def _listeners(value: str) -> tuple[Listener, ...]:
    found = _advertised_listeners(value)
    ports = [(one.host, one.port) for one in found if one.port]
    if len(set(ports)) != len(ports):
        raise ValueError("an address is used twice")
    return found


def _listener(value: str) -> Listener:
    name, separator, rest = value.partition("://")
    if not separator or not name:
        raise ValueError(f"{value} is not NAME://host:port")
    return _address(name.upper(), rest)


def _protocols(value: str) -> tuple[tuple[str, str], ...]:
    found = []
    for part in elements(value):
        name, _, protocol = part.upper().rpartition(":")
        if not name or protocol not in PROTOCOLS:
            raise ValueError(f"{part} is not NAME:PROTOCOL with one of {', '.join(PROTOCOLS)}")
        found.append((name, protocol))
    return tuple(found)


def _http_address(value: str) -> tuple[str, int] | None:
    if not value:
        return None
    if not value.startswith("http://"):
        raise ValueError("must be http://host:port")
    if "," in value:
        raise ValueError("must be one address, http://host:port")
    one = _address("HTTP", value.removeprefix("http://"))
    return one.host, one.port


def _hosts(value: str) -> tuple[str, ...]:
    found = tuple(elements(value))
    for one in found:
        if one != "*" and re.fullmatch("[0-9A-Za-z._-]+", one) is None:
            raise ValueError(f"{one} is not the name of a host, without a port, nor *")
    return found


def _address(name: str, value: str) -> Listener:
    found = _HOST_AND_PORT.fullmatch(value)
    if found is None or int(found[2]) > 65535:
        raise ValueError(f"{value} is not host:port")
    return Listener(name, found[1], int(found[2]))


def _daily_window(value: str) -> DailyWindow | None:
    if not value:
        return None
    found = re.fullmatch("([01][0-9]|2[0-3]):([0-5][0-9])-([01][0-9]|2[0-3]):([0-5][0-9])", value)
    if found is None:
        raise ValueError("must be HH:MM-HH:MM")
    hours, minutes, end_hours, end_minutes = map(int, found.groups())
    window = DailyWindow(hours * 60 + minutes, end_hours * 60 + end_minutes)
    if window.begin_minute == window.end_minute:
        raise ValueError("begins when it ends")
    return window


def _object_store(value: str) -> StoreUrl | None:
    if not value:
        return None
    directory = value.removeprefix("file://")
    if directory != value:
        if not directory.startswith("/") or "\0" in directory:
            raise ValueError("must be file:///directory, with an absolute path")
        return StoreUrl(False, directory.rstrip("/") or "/", "")
    found = re.fullmatch("s3://([a-z0-9][a-z0-9.-]{1,61}[a-z0-9])(/[A-Za-z0-9._/-]*)?", value)
    if found is None:
        raise ValueError("must be file:///directory or s3://bucket/prefix")
    root = (found[2] or "").strip("/")
    return StoreUrl(True, found[1], f"{root}/" if root else "")


PROTOCOLS = ("SASL_SSL", "PLAINTEXT", "SSL", "SASL_PLAINTEXT")  # Kafka's SecurityProtocol

words = Reader(ConfigType.LIST, lambda value: tuple(elements(value)))
upper_words = Reader(ConfigType.LIST, lambda value: tuple(elements(value.upper())))
upper_word = Reader(ConfigType.STRING, str.upper)
directory = Reader(ConfigType.STRING, lambda value: _path(value) if value else None)
directories = Reader(ConfigType.LIST, _directories)  # no directory twice
listeners = Reader(ConfigType.LIST, _listeners)  # `NAME://host:port`, names and addresses unique
advertised_listeners = Reader(ConfigType.LIST, _advertised_listeners)  # names unique; one proxy may serve several
protocols = Reader(ConfigType.STRING, _protocols)  # `NAME:PROTOCOL`, by listener name
http_address = Reader(ConfigType.STRING, _http_address)  # `http://host:port`, or nothing: then no HTTP is served
hosts = Reader(ConfigType.LIST, _hosts)  # names of hosts, or *
object_store = Reader(ConfigType.STRING, _object_store)  # `file:///directory`, `s3://bucket/prefix`, or nothing
daily_window = Reader(ConfigType.STRING, _daily_window)  # `HH:MM-HH:MM`, or nothing for all day
