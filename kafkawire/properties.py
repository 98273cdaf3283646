"""Where the configuration comes from: a server.properties file, the environment, the command line.

What comes later goes before what came earlier, and of everything is known where it stands, so that a complaint can
name the line. What the keys mean is not known here.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from kafkawire.config_values import ConfigError

PREFIX: Final = "KAFKA_"

# What Kafka's scripts and images go by themselves (KafkaDockerWrapper, kafka-run-class.sh): there is no JVM here, and
# logs go to standard error.
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


@dataclass(slots=True)
class Properties:
    """Values of keys, and where each stands."""

    values: dict[str, str] = field(default_factory=dict)
    origins: dict[str, str] = field(default_factory=dict)

    def take(self, found: Iterable[tuple[str, str, str]]) -> None:
        """Adds keys with their values and origins; they replace those that are there."""
        for key, value, origin in found:
            self.values[key] = value
            self.origins[key] = origin


def gather(file: Path | None, environment: Mapping[str, str], settings: Iterable[str]) -> Properties:
    """The file's, over them the environment's, over them `KEY=VALUE` settings. Raises ConfigError."""
    found = Properties()
    if file is not None:
        found.take(parse(text_of(file), str(file)))
    found.take(from_environment(environment))
    for setting in settings:
        found.take((key, value, "--set") for key, value, _ in parse(setting, "--set"))
    return found


def text_of(file: Path) -> str:
    """Raises ConfigError."""
    try:
        return file.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise ConfigError(f"{file} is not UTF-8: {error.reason} at byte {error.start}") from None
    except OSError as error:
        raise ConfigError(f"{file}: {error.strerror or error}") from None


def parse(content: str, name: str) -> Iterator[tuple[str, str, str]]:
    """Java's .properties as Kafka's files use it: `key=value` or `key: value`, # and ! comments, \\ at a line's end.

    Each with the line on which it begins. Raises ConfigError.
    """
    begun, first = "", 0
    for number, raw in enumerate([*content.splitlines(), ""], start=1):
        line = begun + raw.lstrip()
        if not line or line[0] in "#!":
            continue  # a comment ends with its line, whatever stands at the end
        first = first if begun else number
        if line.endswith("\\"):
            begun = line[:-1]
            continue
        begun = ""
        cuts = [at for at in (line.find("="), line.find(":")) if at > 0]
        if not cuts:
            raise ConfigError(f"{name}, line {first}: not a key=value line: {line[:80]}")
        at = min(cuts)
        yield line[:at].strip(), line[at + 1 :].strip(), f"{name}, line {first}"


def from_environment(environment: Mapping[str, str]) -> Iterator[tuple[str, str, str]]:
    """KAFKA_NUM_PARTITIONS is num.partitions: as in Kafka's image `_` is a dot, `__` an underscore, `___` a hyphen."""
    for name in sorted(environment):
        if name.startswith(PREFIX) and name not in NO_PROPERTIES:
            dotted = name.removeprefix(PREFIX).lower().replace("_", ".")
            yield dotted.replace("...", "-").replace("..", "_"), environment[name], name
