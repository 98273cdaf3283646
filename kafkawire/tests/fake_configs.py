"""A catalogue of few configs, enough for the handlers of config requests."""

from __future__ import annotations

from collections.abc import Mapping

from kafkawire.config.entries import ConfigEntry, ConfigSource

LONG, PASSWORD = 5, 9
RETENTION = ConfigEntry(
    "retention.ms",
    "604800000",
    ConfigSource.DEFAULT,
    synonyms=(("log.retention.hours", "168", ConfigSource.DEFAULT),),
    type=LONG,
    documentation="How long records are kept.",
)


class FakeConfigs:
    """See `kafkawire.requests.context.ConfigCatalogue`."""

    def topic(self, name: str, configs: Mapping[str, str]) -> list[ConfigEntry]:
        """The configs that were set, and the retention."""
        source = ConfigSource.TOPIC
        shown = {RETENTION.name: RETENTION}
        shown.update(
            {key: ConfigEntry(key, value, source, synonyms=((key, value, source),)) for key, value in configs.items()}
        )
        return list(shown.values())

    def broker(self) -> list[ConfigEntry]:
        """A config that was set, the node id, and a password."""
        return [
            ConfigEntry("log.retention.ms", "5", ConfigSource.STATIC_BROKER, type=LONG, is_read_only=False),
            ConfigEntry("node.id", "1", ConfigSource.STATIC_BROKER, is_read_only=True),
            ConfigEntry(
                "ssl.key.password",
                None,
                ConfigSource.STATIC_BROKER,
                type=PASSWORD,
                is_sensitive=True,
                is_read_only=True,
            ),
        ]

    def cluster_default(self) -> list[ConfigEntry]:
        """A dynamic default of all brokers."""
        return [ConfigEntry("log.retention.ms", "7", ConfigSource.DYNAMIC_DEFAULT_BROKER)]
