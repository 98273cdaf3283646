"""Configs in the form that clients see: resource, value in effect, and source."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Protocol


class ConfigResourceType(IntEnum):
    """Kafka's ConfigResource.Type."""

    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32


class ConfigSource(IntEnum):
    """Kafka's ConfigSource, for configs of topics and brokers."""

    TOPIC = 1
    DYNAMIC_BROKER = 2
    DYNAMIC_DEFAULT_BROKER = 3
    STATIC_BROKER = 4
    DEFAULT = 5
    DYNAMIC_BROKER_LOGGER = 6


@dataclass(frozen=True, slots=True)
class ConfigEntry:
    """A config in effect. `synonyms` are all its settings, as name, value and source; the first one counts.

    `type` is the number of Kafka's ConfigType. A value of None is not set, or secret.
    """

    name: str
    value: str | None
    source: ConfigSource
    synonyms: tuple[tuple[str, str | None, ConfigSource], ...] = ()
    type: int = 0
    documentation: str = ""
    is_sensitive: bool = False
    is_read_only: bool = False


class ConfigCatalogue(Protocol):
    """Configs in effect with their sources; all keys, by name."""

    def topic(self, name: str, configs: Mapping[str, str], /) -> Sequence[ConfigEntry]:
        """Configs of a topic that has these configs set."""
        ...

    def broker(self) -> Sequence[ConfigEntry]:
        """Configs of this broker."""
        ...

    def cluster_default(self) -> Sequence[ConfigEntry]:
        """Configs that were set for all brokers at run time, and nothing else."""
        ...
