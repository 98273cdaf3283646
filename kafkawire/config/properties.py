"""Sources of the configuration: a server.properties file, the environment, the command line.

Later sources override earlier ones. The place of each value is known, so that an error can name the line. This module
does not know the keys; so no error quotes a value, which may be a password.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from kafkawire.config.values import ConfigError

PREFIX: Final = "KAFKA_"

# Variables of Kafka's scripts and images themselves (KafkaDockerWrapper, kafka-run-class.sh), which are no properties:
# there is no JVM here, and logs go to standard error.
NO_PROPERTIES: Final = frozenset(
    {
        "KAFKA_DEBUG",
        "KAFKA_GC_LOG_OPTS",
        "KAFKA_HEAP_OPTS",
        "KAFKA_HOME",
        "KAFKA_JMX_HOSTNAME",
        "KAFKA_JMX_OPTS",
        "KAFKA_JMX_PORT",
        "KAFKA_JVM_PERFORMANCE_OPTS",
        "KAFKA_LOG4J_LOGGERS",
        "KAFKA_LOG4J_OPTS",
        "KAFKA_LOG4J_ROOT_LOGLEVEL",
        "KAFKA_OPTS",
        "KAFKA_TOOLS_LOG4J_LOGLEVEL",
        "KAFKA_VERSION",
    }
)

# The grammar of java.util.Properties.
_WHITE: Final = " \t\f"
_LINE_END: Final = re.compile(r"\r\n|\r|\n")
_PAIR: Final = re.compile(r"((?:\\.|[^\\=: \t\f])*)[ \t\f]*[=:]?[ \t\f]*(.*)", re.DOTALL)
_ESCAPE: Final = re.compile(r"\\u([0-9A-Fa-f]{4})|\\.", re.DOTALL)
_ESCAPED: Final = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


@dataclass(slots=True)
class Properties:
    """Values of keys, and their places."""

    values: dict[str, str] = field(default_factory=dict)
    origins: dict[str, str] = field(default_factory=dict)

    def take(self, found: Iterable[tuple[str, str, str]]) -> None:
        """Add keys with their values and origins; they override present ones."""
        for key, value, origin in found:
            self.values[key] = value
            self.origins[key] = origin


def gather(file: Path | None, environment: Mapping[str, str], settings: Iterable[str]) -> Properties:
    """Properties of the file, overridden by the environment, overridden by `KEY=VALUE` settings. Raises ConfigError."""
    found = Properties()
    if file is not None:
        found.take(parse(text_of(file), str(file)))
    found.take(from_environment(environment))
    found.take(from_settings(settings))
    return found


def text_of(file: Path) -> str:
    """Text of a file. Raises ConfigError."""
    try:
        return file.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise ConfigError(f"{file} is not UTF-8: {error.reason} at byte {error.start}") from None
    except OSError as error:
        raise ConfigError(f"{file}: {error.strerror or error}") from None


def parse(content: str, name: str) -> Iterator[tuple[str, str, str]]:
    """Parse like java.util.Properties.load: keys and values, each with the line on which it begins.

    Raises ConfigError.
    """
    for number, line in _logical_lines(content):
        origin = f"{name}, line {number}"
        pair = _PAIR.fullmatch(line)
        assert pair is not None, line  # matches any line that does not end in an odd backslash
        yield _unescaped(pair[1], origin), _unescaped(pair[2], origin), origin


def _logical_lines(content: str) -> Iterator[tuple[int, str]]:
    """Logical lines: without blank lines and comments; lines that a backslash continues are joined."""
    continued, first = "", 0
    for number, raw in enumerate(_LINE_END.split(content), start=1):
        line = raw.lstrip(_WHITE)
        if not continued:
            first = number
            if line.startswith(("#", "!")):
                continue  # a comment ends with its line, even after a backslash
        line = continued + line
        # Backslashes in pairs stand for themselves.
        is_continued = (len(line) - len(line.rstrip("\\"))) % 2 == 1
        continued = line[:-1] if is_continued else ""
        if line and not is_continued:
            yield first, line
    if continued:
        yield first, continued


def _unescaped(text: str, origin: str) -> str:
    r"""Raises ConfigError for a \u without four hex digits, and for half a character."""

    def replacement(escape: re.Match[str]) -> str:
        if escape[0] == r"\u":
            raise ConfigError(rf"{origin}: \u needs four hex digits; a backslash is written twice")
        return chr(int(escape[1], 16)) if escape[1] else _ESCAPED.get(escape[0][1], escape[0][1])

    found = _ESCAPE.sub(replacement, text)
    try:
        return found.encode("utf-16", "surrogatepass").decode("utf-16")  # \u is a unit of UTF-16, as in Java
    except UnicodeDecodeError:
        raise ConfigError(rf"{origin}: \u makes half a character") from None


def from_settings(settings: Iterable[str]) -> Iterator[tuple[str, str, str]]:
    """Properties of the command line: `KEY=VALUE` without escapes, as in Kafka's --override. Raises ConfigError."""
    for number, setting in enumerate(settings, start=1):
        key, separator, value = (part.strip() for part in setting.partition("="))
        if not separator or not key or key.startswith(("#", "!")):
            raise ConfigError(f"--set: not KEY=VALUE, the {number}. of them")
        yield key, value, "--set"


def from_environment(environment: Mapping[str, str]) -> Iterator[tuple[str, str, str]]:
    """Properties of the environment: KAFKA_NUM_PARTITIONS is num.partitions.

    As in Kafka's image, `_` is a dot, `__` an underscore, `___` a hyphen.
    """
    for name in sorted(environment):
        if name.startswith(PREFIX) and name not in NO_PROPERTIES:
            dotted = name.removeprefix(PREFIX).lower().replace("_", ".")
            yield dotted.replace("...", "-").replace("..", "_"), environment[name], name
