"""Decisions about the configs of topics and brokers: pure, from the image to a plan.

A change is applied to the configs of that moment, all of it or nothing. Order and texts are those of Kafka's
ConfigurationControlManager. The validator knows the keys and their values.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from coordinator.api import CLUSTER_DEFAULT, ConfigOperation
from coordinator.errors import InvalidConfig, InvalidTopicRequest, UnknownTopic
from coordinator.metadata.names import validate_name
from coordinator.metadata.nodes import encode_broker_configs, encode_topic
from coordinator.metadata.plans import Plan, write_single
from coordinator.metadata_store import paths
from coordinator.metadata_store.store import Put

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from coordinator.api import ClusterImage, ConfigChange, TopicInfo
    from coordinator.ports import ConfigValidator

CONFIGS_SIZE_MAX_BYTES = 64 * 1024  # of one topic or broker, whose lists may grow: as much as a node and a multi hold
BROKERS_SIZE_MAX_BYTES = 240 * 1024  # as they are written: in their node, and in that of the change


def check_size(configs: Mapping[str, str]) -> None:
    """Raise InvalidConfig when the configs are more than a node is to hold."""
    if sum(len(key.encode()) + len(value.encode()) for key, value in configs.items()) > CONFIGS_SIZE_MAX_BYTES:
        raise InvalidConfig(f"All configs together must not be longer than {CONFIGS_SIZE_MAX_BYTES} bytes.")


def altered(
    configs: Mapping[str, str], changes: Sequence[ConfigChange], validator: ConfigValidator, *, replaces: bool
) -> dict[str, str]:
    """The configs after the changes. With `replaces`, the configs before are dropped. Raises InvalidConfig."""
    found = {} if replaces else dict(configs)
    for change in changes:
        if change.operation is ConfigOperation.SET:
            found[change.key] = change.value
        elif change.operation is ConfigOperation.DELETE:
            found.pop(change.key, None)
        else:
            found[change.key] = _listed(found.get(change.key), change, validator)
    check_size(found)
    return found


def _listed(value: str | None, change: ConfigChange, validator: ConfigValidator) -> str:
    """A list with elements more or fewer; an unset list begins as its default."""
    default = validator.list_value(change.key)
    if default is None:
        raise InvalidConfig(f"Can't {change.operation.name} to key {change.key} because its type is not LIST.")
    elements = [element for element in (default if value is None else value).split(",") if element]
    for element in change.value.rstrip(",").split(","):
        if change.operation is ConfigOperation.APPEND and element not in elements:
            elements.append(element)
        elif change.operation is ConfigOperation.SUBTRACT and element in elements:
            elements.remove(element)
    return ",".join(elements)


def decide_topic_configs(
    image: ClusterImage, name: str, changes: Sequence[ConfigChange], validator: ConfigValidator, *, replaces: bool
) -> TopicInfo:
    """The topic as it will be. The configs are checked before the topic's existence, as in Kafka."""
    topic = image.topics.get(name)
    configs = altered(topic.configs if topic else {}, changes, validator, replaces=replaces)
    if not name:
        raise InvalidTopicRequest("Default topic resources are not allowed.")
    validate_name(name)
    validator.validate(name, configs, topic.configs if topic else None)
    if topic is None:
        raise UnknownTopic(name)
    return replace(topic, configs=configs)


def topic_alteration(before: TopicInfo, topic: TopicInfo) -> Plan:
    """The plan that writes the topic's own node, unless all is as it was."""
    if topic.configs == before.configs:
        return Plan((), before)
    topic = replace(topic, version=before.version + 1)
    return Plan([Put(paths.topic(topic.name), encode_topic(topic), before.version)], topic)


def decide_broker_configs(
    image: ClusterImage, broker: str, changes: Sequence[ConfigChange], validator: ConfigValidator, *, replaces: bool
) -> dict[str, Mapping[str, str]]:
    """The configs of all brokers, and their default, after the changes to one."""
    configs = altered(image.broker_configs.get(broker, {}), changes, validator, replaces=replaces)
    validator.validate_broker(configs, is_default=broker == CLUSTER_DEFAULT)
    all_configs = {**image.broker_configs, broker: configs}
    return {name: of_one for name, of_one in sorted(all_configs.items()) if of_one}


def broker_alteration(before: ClusterImage, configs: Mapping[str, Mapping[str, str]]) -> Plan:
    """The plan that writes the node of all brokers, unless all is as it was."""
    if configs == before.broker_configs:
        return Plan(())
    value = encode_broker_configs(configs, before.extra_of(paths.BROKER_CONFIGS))
    if len(value) > BROKERS_SIZE_MAX_BYTES:
        raise InvalidConfig(
            f"The configs of all brokers together must not be longer than {BROKERS_SIZE_MAX_BYTES} bytes."
        )
    return Plan([write_single(before, paths.BROKER_CONFIGS, value)])
