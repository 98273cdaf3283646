"""Configs in effect of topics and of this broker, their sources, and the checks of changes.

A value comes from the first of these that has one: the topic, this broker at run time, all brokers at run time, the
broker's properties, the key's default. The broker keys of a topic key, and the descriptions, follow Kafka's
ConfigHelper and DynamicBrokerConfig (KIP-226). Keys and their readers are in the tables; this module names none of
them, except for those of internal topics.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from itertools import dropwhile
from typing import Any, Final

import structlog

from coordinator.api import CLUSTER_DEFAULT, INTERNAL_TOPICS, TopicInfo
from coordinator.errors import CoordinatorError, InvalidConfig, InvalidTopicRequest
from engine.log_config import CleanupPolicy, FlushPolicy, LogConfig
from kafkawire.config.broker_config import BROKER_KEYS, OLDER_NAMES, Config, ConfigError, load, read_value
from kafkawire.config.entries import ConfigEntry, ConfigSource
from kafkawire.config.keys import Key, TopicKey, Update
from kafkawire.config.tier_rules import check_tiering
from kafkawire.config.topic_config import SYNONYMS, TOPIC_KEYS
from kafkawire.config.unbuilt import HARMLESS_KEYS
from kafkawire.config.values import ConfigType

COMPACTION: Final = ("cleanup.policy", "compact")
OF_INTERNAL_TOPICS: Final = {"compression.type": "producer", "flush.policy": "sync"}  # overrides all set values

Texts = Mapping[str, str]  # key -> value, as written
Synonym = tuple[str, str | None, ConfigSource]

_DEFAULTS: Final[Texts] = {name: key.default for name, key in BROKER_KEYS.items() if key.default is not None}
_NOTHING: Final[Texts] = {}

_log = structlog.get_logger(__name__)


class EffectiveConfigs:
    """The configs of one broker. `config` and `log_config` are in effect."""

    def __init__(self, config: Config) -> None:
        self._node_id = str(config.node_id)
        self._static = _by_newest_name(config.given)
        self.change({})

    # Configs in effect

    def change(self, broker_configs: Mapping[str, Texts]) -> None:
        """Apply the run-time configs of brokers. Invalid ones are left out and logged."""
        self._own = _usable(broker_configs.get(self._node_id, _NOTHING), is_default=False)
        self._all = _usable(broker_configs.get(CLUSTER_DEFAULT, _NOTHING), is_default=True)
        self._texts = _overlaid(self._static, self._all, self._own)
        self.config, _ = load(self._texts, cluster_wide=self._all.keys() | self._own.keys())
        defaults = {name: self._topic_default(key) for name, key in TOPIC_KEYS.items()}
        self._log_defaults = LogConfig(**_fields(defaults))
        self._unset = {name: self._topic_entry(key, defaults[name], is_own=False) for name, key in TOPIC_KEYS.items()}

    @property
    def log_defaults(self) -> LogConfig:
        """The engine's config for a topic that sets nothing."""
        return self._log_defaults

    def log_config(self, topic: str, configs: Texts) -> LogConfig:
        """The engine's config for a topic: own keys over the broker's defaults; internal topics have fixed values."""
        fields = _fields({name: value for name, value in configs.items() if name in TOPIC_KEYS})
        if topic in INTERNAL_TOPICS:
            fields |= _fields(OF_INTERNAL_TOPICS)
            fields["cleanup_policy"] = frozenset({CleanupPolicy.COMPACT})  # internal topics are only compacted
        found = replace(self._log_defaults, **fields)
        is_compacted = CleanupPolicy.COMPACT in found.cleanup_policy
        return replace(found, requires_keys=is_compacted and topic not in INTERNAL_TOPICS)

    def is_synced(self, topic: TopicInfo) -> bool:
        """See `coordinator.ports.ConfigValidator`."""
        return self.log_config(topic.name, topic.configs).flush_policy is FlushPolicy.SYNC

    def is_in_tier(self, topic: TopicInfo) -> bool:
        """Whether the topic's segments go to the remote tier."""
        return self.log_config(topic.name, topic.configs).remote_storage

    def may_leave_in_tier(self, topic: TopicInfo) -> bool:
        """See `coordinator.ports.ConfigValidator`. True also for a topic that is leaving the tier."""
        config = self.log_config(topic.name, topic.configs)
        return config.remote_storage or config.remote_delete_on_disable

    def _topic_default(self, key: TopicKey) -> str:
        """Default of a topic key."""
        for texts in (self._texts, _DEFAULTS):
            for source in key.sources:
                text = texts.get(source.key.name)
                if text is not None and source.key.reader(text) is not None:
                    return source.value(source.key.reader.shown(text))
        return key.default

    # Descriptions

    def topic(self, name: str, configs: Texts) -> list[ConfigEntry]:
        """All keys of a topic with these configs, by name."""
        entries = {
            key.name: self._topic_entry(key, configs[key.name], is_own=True)
            for key in TOPIC_KEYS.values()
            if key.name in configs
        }
        found = [entries.get(key, unset) for key, unset in self._unset.items()]
        if name in INTERNAL_TOPICS:
            return [replace(one, value=OF_INTERNAL_TOPICS.get(one.name, one.value)) for one in found]
        return found

    def _topic_entry(self, key: TopicKey, value: str, *, is_own: bool) -> ConfigEntry:
        shown = key.reader.shown(value)
        synonyms: tuple[Synonym, ...] = self._synonyms(key.sources[0].key) if key.sources else ()
        if is_own:
            synonyms = ((key.name, shown, ConfigSource.TOPIC), *synonyms)
        return ConfigEntry(
            key.name,
            shown,
            synonyms[0][2] if synonyms else ConfigSource.DEFAULT,
            synonyms=synonyms,
            type=key.reader.type,
            documentation=key.documentation,
        )

    def broker(self) -> list[ConfigEntry]:
        """All keys of this broker, by name."""
        return [
            self._broker_entry(key, self._texts.get(key.name, key.default), self._synonyms(key))
            for key in BROKER_KEYS.values()
        ]

    def cluster_default(self) -> list[ConfigEntry]:
        """The configs of all brokers at run time, by name."""
        source = ConfigSource.DYNAMIC_DEFAULT_BROKER
        return [
            self._broker_entry(key, value, tuple(one for one in self._synonyms(key) if one[2] is source))
            for key, value in ((BROKER_KEYS[name], value) for name, value in sorted(self._all.items()))
        ]

    def _broker_entry(self, key: Key, value: str | None, synonyms: tuple[Synonym, ...]) -> ConfigEntry:
        return ConfigEntry(
            key.name,
            key.shown(value),
            synonyms[0][2] if synonyms else ConfigSource.DEFAULT,
            synonyms=synonyms,
            type=key.reader.type,
            documentation=key.documentation,
            is_sensitive=key.is_sensitive,
            is_read_only=key.update is Update.READ_ONLY,
        )

    def _synonyms(self, key: Key) -> tuple[Synonym, ...]:
        """All values of a key and its synonyms, in the order of precedence (ConfigHelper.configSynonyms).

        As there, synonyms that precede all values of the key itself are left out.
        """
        layers = (
            (self._own, ConfigSource.DYNAMIC_BROKER),
            (self._all, ConfigSource.DYNAMIC_DEFAULT_BROKER),
            (self._static, ConfigSource.STATIC_BROKER),
            (_DEFAULTS, ConfigSource.DEFAULT),
        )
        found: list[Synonym] = [
            (name, None if key.is_sensitive else texts[name], source)
            for texts, source in layers
            for name in SYNONYMS.get(key.name, (key.name,))
            if name in texts
        ]
        return tuple(dropwhile(lambda one: one[0] != key.name, found))

    # Checks of changes

    def validate(self, topic: str, configs: Texts, before: Texts | None = None) -> None:
        """Check configs of a topic, after those of `before` if there are any.

        Raises InvalidConfig, naming the key, for an unknown key or a value that is not allowed.
        """
        for name, value in configs.items():
            if name not in TOPIC_KEYS:
                raise InvalidConfig(f"Unknown topic config name: {name}")
            self._validate_topic_key(TOPIC_KEYS[name], value)
        config = self.log_config(topic, configs)
        if config.min_compaction_lag_ms > config.max_compaction_lag_ms:
            raise InvalidConfig(
                f"conflict topic config setting min.compaction.lag.ms ({config.min_compaction_lag_ms}) > "
                f"max.compaction.lag.ms ({config.max_compaction_lag_ms})"
            )
        was = None if before is None else self.log_config(topic, before)
        check_tiering(was, config, is_enabled=self.config.tier_enable)

    def _validate_topic_key(self, key: TopicKey, value: str) -> None:
        try:
            found = key.reader(value)
        except ValueError as error:
            raise InvalidConfig(f"Invalid value {value} for configuration {key.name}: {error}") from None
        default = self._unset[key.name].value or ""
        if key.field is None and found != key.reader(default):
            raise InvalidConfig(f"{key.name}={value} is not supported yet, only {key.name}={default}")

    def validate_broker(self, configs: Texts, *, is_default: bool) -> None:
        """Check run-time configs: all that will be set for this broker or, with `is_default`, for all brokers.

        Raises InvalidConfig or, where Kafka does, InvalidTopicRequest.
        """
        for name, value in configs.items():
            _validate_broker_key(name, value, is_default=is_default)
        own, cluster_wide = (self._own, configs) if is_default else (configs, self._all)
        try:
            load(_overlaid(self._static, cluster_wide, own), cluster_wide=cluster_wide.keys() - own.keys())
        except ConfigError as error:
            raise InvalidTopicRequest(f"Invalid dynamic configuration: {error}") from None

    def list_value(self, key: str) -> str | None:
        """The base of APPEND and SUBTRACT for a list that is not set; None for a key that is no list."""
        if key in TOPIC_KEYS:
            return self._unset[key].value if TOPIC_KEYS[key].reader.type is ConfigType.LIST else None
        if key in BROKER_KEYS and BROKER_KEYS[key].reader.type is ConfigType.LIST:
            return self._static.get(key, _DEFAULTS.get(key, ""))
        return None


def _by_newest_name(given: Texts) -> dict[str, str]:
    """Properties with the newest names of the broker's keys; a key precedes its older name."""
    older = {new: given[old] for old, new in OLDER_NAMES.items() if old in given}
    return {name: value for name, value in (older | dict(given)).items() if name in BROKER_KEYS}


def _overlaid(static: Texts, *dynamic: Texts) -> dict[str, str]:
    """Merge layers: each one overrides the layers before, with all synonyms (DynamicBrokerConfig.overrideProps)."""
    found = dict(static)
    for texts in dynamic:
        for name, value in texts.items():
            for synonym in SYNONYMS.get(name, (name,)):
                found.pop(synonym, None)
            found[name] = value
    return found


def _fields(texts: Texts) -> dict[str, Any]:
    """Values of LogConfig's fields for the given keys that are built."""
    return {
        key.field: key.reader(text) for key, text in ((TOPIC_KEYS[name], text) for name, text in texts.items())
        if key.field is not None
    }  # fmt: skip


def _usable(configs: Texts, *, is_default: bool) -> dict[str, str]:
    """The valid configs. Others are logged: another version of this broker may have allowed them."""
    found = {}
    for name, value in configs.items():
        try:
            _validate_broker_key(name, value, is_default=is_default)
        except CoordinatorError as error:
            _log.error("cluster config ignored", key=name, reason=str(error))
        else:
            found[name] = value
    return found


def _validate_broker_key(name: str, value: str, *, is_default: bool) -> None:
    key = BROKER_KEYS.get(name)
    if key is None:
        known = f"{name} has no effect here: {HARMLESS_KEYS[name]}" if name in HARMLESS_KEYS else None
        raise InvalidConfig(known or f"Unknown broker config name: {name}")
    if key.update is Update.READ_ONLY:
        raise InvalidTopicRequest(f"Cannot update these configs dynamically: [{name}]")
    if key.is_sensitive:
        raise InvalidTopicRequest(f"{name} is set where the broker starts, such as in its properties file")
    if key.update is Update.PER_BROKER:
        if is_default:
            message = "Cannot update these configs at default cluster level, broker id must be specified"
            raise InvalidTopicRequest(f"{message}: [{name}]")
        raise InvalidConfig(f"{name} cannot be changed while the broker runs yet")
    try:
        read_value(key, value)
    except ConfigError as error:
        raise (InvalidTopicRequest if key.is_built else InvalidConfig)(str(error)) from None
