"""What is known of a key, be it a broker's or a topic's: one shape for all of them.

The tables are in `config` (what the broker obeys), `topic_config` (what topics may set, with the broker keys that are
their defaults) and `unbuilt` (what may only be given its default). This module refuses to know any key by name, but for
what names of secrets look like.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum
from typing import Final

from kafkawire.config.values import ConfigType, Reader

# Kafka's keys of type PASSWORD, below a listener's prefix too, and what others may call theirs.
_SECRET: Final = re.compile(
    r".*(password|passphrase|secret|jaas\.config|ssl\.keystore\.(key|certificate\.chain)|ssl\.truststore\.certificates).*"
)


def is_secret(name: str) -> bool:
    """Whether a key that is in no table, as another broker may have it, sounds like one whose value is not shown. Where
    a file is may be shown."""
    return _SECRET.fullmatch(name.lower()) is not None and not name.lower().endswith(".file")


class Update(Enum):
    """How a broker key can be changed while the broker runs (Kafka's DynamicBrokerConfig, KIP-226)."""

    READ_ONLY = "read-only"
    PER_BROKER = "read-only here, per-broker in Kafka"
    CLUSTER_WIDE = "cluster-wide"  # per broker, too


@dataclass(frozen=True, slots=True)
class Key:
    """A broker key. `default` is as it would stand in a file; None is Kafka's null: nothing is set."""

    name: str
    reader: Reader
    default: str | None
    documentation: str
    update: Update = Update.READ_ONLY
    is_built: bool = True  # otherwise it may only be given its default (RULES G1)

    @property
    def is_sensitive(self) -> bool:
        """Whether its value is never shown."""
        return self.reader.type is ConfigType.PASSWORD

    def shown(self, value: str | None) -> str | None:
        """A value as tools see it."""
        return None if value is None or self.is_sensitive else self.reader.shown(value)

    def assigned(self, name: str, value: str) -> str:
        """How a complaint names a value of this key, under the `name` it was given."""
        return name if self.is_sensitive else f"{name}={value}"

    def is_default(self, value: str) -> bool:
        """Whether a value that may be written differently is the default."""
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
        """The topic key's; what is below zero is no limit, in any unit."""
        return text if self.factor == 1 else str(max(-1, int(text) * self.factor))


@dataclass(frozen=True, slots=True)
class TopicKey:
    """A key that topics may set. Where one does not, the first of `sources` that is set says what holds.

    `field` is where `engine.api.LogConfig` has it; None: not built yet, or a key without sources keeps its `default`.
    """

    name: str
    reader: Reader
    field: str | None
    documentation: str
    sources: tuple[Source, ...] = ()
    default: str = ""
