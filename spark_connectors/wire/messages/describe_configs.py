"""DescribeConfigs: the configs of a topic, with the source of each value."""

from __future__ import annotations

from typing import Final

from spark_connectors.wire.api import Api
from spark_connectors.wire.layout import Bool, Int8, Int16, Int32, NullableText, Text, message

TOPIC: Final = 2  # a type of resource, numbered as in Kafka's ConfigResource
OF_TOPIC: Final = 1  # a source: it was set for this topic (ConfigEntry.ConfigSource)


@message
class ResourceToDescribe:
    """A resource; all keys if `configuration_keys` is null."""

    resource_type: Int8
    resource_name: Text
    configuration_keys: tuple[Text, ...] | None


@message
class DescribeConfigsRequest:
    resources: tuple[ResourceToDescribe, ...]
    include_synonyms: Bool = False
    include_documentation: Bool = False


@message
class ConfigSynonym:
    name: Text
    value: NullableText
    source: Int8


@message
class DescribedConfig:
    name: Text
    value: NullableText
    read_only: Bool
    config_source: Int8
    is_sensitive: Bool
    synonyms: tuple[ConfigSynonym, ...]
    config_type: Int8
    documentation: NullableText


@message
class DescribedResource:
    error_code: Int16
    error_message: NullableText
    resource_type: Int8
    resource_name: Text
    configs: tuple[DescribedConfig, ...]


@message
class DescribeConfigsResponse:
    throttle_time_ms: Int32
    results: tuple[DescribedResource, ...]


DESCRIBE_CONFIGS: Final = Api("DescribeConfigs", 32, 4, DescribeConfigsRequest, DescribeConfigsResponse)
