"""How the values of properties are read: each parser takes the text and returns the value or raises ValueError."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path


class ConfigError(Exception):
    """A configuration that must not start; its text is the one line the user sees."""


@dataclass(frozen=True, slots=True)
class Listener:
    """One `NAME://host:port`. The host is empty for every address; port 0 lets the system choose."""

    name: str
    host: str
    port: int


def text(value: str) -> str:
    """Any text."""
    return value


def boolean(value: str) -> bool:
    """`true` or `false`, in any case."""
    if value.lower() not in ("true", "false"):
        raise ValueError("must be true or false")
    return value.lower() == "true"


def at_least(low: int, high: int) -> Callable[[str], int]:
    """A whole number within [low, high]."""

    def parse(value: str) -> int:
        number = _whole_number(value)
        if not low <= number <= high:
            raise ValueError(f"must be between {low} and {high}")
        return number

    return parse


def at_least_or_unlimited(low: int, unlimited: int) -> Callable[[str], int]:
    """A whole number from `low` on; -1, as in Kafka, for no limit."""

    def parse(value: str) -> int:
        number = _whole_number(value)
        if number == -1:
            return unlimited
        if not low <= number <= unlimited:
            raise ValueError(f"must be between {low} and {unlimited}, or -1 for no limit")
        return number

    return parse


def _whole_number(value: str) -> int:
    """What Java's parseLong takes; Python's int would take 1_000 as well."""
    if re.fullmatch("[+-]?[0-9]{1,19}", value) is None:
        raise ValueError("must be a whole number")
    return int(value)


def optional(parse: Callable[[str], int]) -> Callable[[str], int | None]:
    """Nothing at all, or what `parse` reads."""

    def read(value: str) -> int | None:
        return parse(value) if value else None

    return read


def ratio(value: str) -> float:
    """A number above 0 and up to 1; 1 means never."""
    try:
        number = float(value)
    except ValueError:
        raise ValueError("must be a number") from None
    if not 0 < number <= 1:
        raise ValueError("must be above 0 and at most 1")
    return number


def choice(*allowed: str) -> Callable[[str], str]:
    """One of the words given."""

    def parse(value: str) -> str:
        if value not in allowed:
            raise ValueError(f"must be one of {', '.join(allowed)}")
        return value

    return parse


def directories(value: str) -> tuple[Path, ...]:
    """A comma-separated list of directories, each once."""
    found = tuple(Path(part.strip()) for part in value.split(",") if part.strip())
    if not found:
        raise ValueError("names no directory")
    if len(set(found)) != len(found):
        raise ValueError("names a directory twice")
    return found


def listeners(value: str) -> tuple[Listener, ...]:
    """A comma-separated list of `NAME://host:port`; names and ports are unique, the protocol is PLAINTEXT."""
    found = tuple(_listener(part.strip()) for part in value.split(",") if part.strip())
    if len({one.name for one in found}) != len(found):
        raise ValueError("a listener name is used twice")
    ports = [(one.host, one.port) for one in found if one.port]
    if len(set(ports)) != len(ports):
        raise ValueError("an address is used twice")
    return found


def http_address(value: str) -> tuple[str, int] | None:
    """`http://host:port`, or nothing: then no HTTP is served."""
    if not value:
        return None
    if not value.startswith("http://"):
        raise ValueError("must be http://host:port")
    one = _address("HTTP", value.removeprefix("http://"))
    return one.host, one.port


def _listener(value: str) -> Listener:
    name, separator, rest = value.partition("://")
    if not separator or not name:
        raise ValueError(f"{value} is not NAME://host:port")
    if name.upper() in ("SSL", "SASL_PLAINTEXT", "SASL_SSL"):
        raise ValueError(f"{name}: only PLAINTEXT is supported yet")
    return _address(name.upper(), rest)


def _address(name: str, value: str) -> Listener:
    host, separator, port = value.rpartition(":")
    if not separator or re.fullmatch("[0-9]{1,5}", port) is None or int(port) > 65535:
        raise ValueError(f"{value} is not host:port")
    return Listener(name, host.strip("[]"), int(port))
