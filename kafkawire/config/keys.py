"""Description of a key, of brokers or of topics: one form for all of them.

The tables are in `broker_config` (keys of the broker), `topic_config` (keys of topics, with the broker keys that are
their defaults) and `unbuilt` (keys that may only have their default). This module names no key, except for the patterns
of secrets.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum
from typing import Final

from kafkawire.config.values import ConfigType, Reader

# Kafka's keys of type PASSWORD, also with a listener's prefix, and usual names of foreign secrets.
_SECRET: Final = re.compile(
    r".*(password|passphrase|secret|jaas\.config|ssl\.keystore\.(key|certificate\.chain)|ssl\.truststore\.certificates).*"
)


def is_secret(name: str) -> bool:
    """Whether an unknown key, perhaps of another broker version, sounds like a secret.

    Paths of files are no secrets.
    """
    return _SECRET.fullmatch(name.lower()) is not None and not name.lower().endswith(".file")


class Update(Enum):
    """How a broker key can be changed while the broker runs (Kafka's DynamicBrokerConfig, KIP-226)."""

    READ_ONLY = "read-only"
    PER_BROKER = "read-only here, per-broker in Kafka"
    CLUSTER_WIDE = "cluster-wide"  # or per broker


@dataclass(frozen=True, slots=True)
class Key:
    """A broker key. `default` is written as in a file; None is Kafka's null: not set."""

    name: str
    reader: Reader
    default: str | None
    documentation: str
    update: Update = Update.READ_ONLY
    is_built: bool = True  # otherwise it may only have its default (RULES G1)

    @property
    def is_sensitive(self) -> bool:
        """Whether its value is never shown."""
        return self.reader.type is ConfigType.PASSWORD

    def shown(self, value: str | None) -> str | None:
        """The value in the form of Kafka's tools."""
        return None if value is None or self.is_sensitive else self.reader.shown(value)

    def assigned(self, name: str, value: str) -> str:
        """Text of an assignment in error messages, with the `name` that was given."""
        return name if self.is_sensitive else f"{name}={value}"

    def is_default(self, value: str) -> bool:
        """Whether a value, however written, is the default."""
        try:
            return bool(self.reader(value) == self.reader(self.default or ""))
        except ValueError:
            return False


@dataclass(frozen=True, slots=True)
class Source:
    """A broker key as the default of a topic key; `factor` turns its unit into the topic key's."""

    key: Key
    factor: int = 1

    def value(self, text: str) -> str:
        """Value for the topic key. A value below zero means no limit, in any unit."""
        return text if self.factor == 1 else str(max(-1, int(text) * self.factor))


@dataclass(frozen=True, slots=True)
class TopicKey:
    """A key of topics. If a topic does not set it, the first of `sources` that is set counts.

    `field` is its field in `engine.log_config.LogConfig`; None: not built yet. A key without sources has its `default`.
    """

    name: str
    reader: Reader
    field: str | None
    documentation: str
    sources: tuple[Source, ...] = ()
    default: str = ""
