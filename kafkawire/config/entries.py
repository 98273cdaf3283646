"""Configs as clients ask for them: whose they are, what is in effect, and where it comes from."""

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
    """Kafka's ConfigSource, as far as configs of topics and brokers come from there."""

    TOPIC = 1
    DYNAMIC_BROKER = 2
    DYNAMIC_DEFAULT_BROKER = 3
    STATIC_BROKER = 4
    DEFAULT = 5
    DYNAMIC_BROKER_LOGGER = 6


@dataclass(frozen=True, slots=True)
class ConfigEntry:
    """A config in effect. `synonyms` are all that set it, as name, value and source; the first of them counts.

    `type` is the number of Kafka's ConfigType. A value of None is not set, or not to be seen.
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
    """What is in effect, and where it comes from; all keys, by name."""

    def topic(self, name: str, configs: Mapping[str, str], /) -> Sequence[ConfigEntry]:
        """For a topic, given what was set for it."""
        ...

    def broker(self) -> Sequence[ConfigEntry]:
        """For this broker."""
        ...

    def cluster_default(self) -> Sequence[ConfigEntry]:
        """What was set for all brokers at run time, and nothing else."""
        ...
