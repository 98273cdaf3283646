"""Allowed configs of topics in the remote tier: Kafka's LogConfig.validateTopicLogConfigValues, with its texts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from coordinator.errors import InvalidConfig
from engine.log_config import AS_RECORDS, CleanupPolicy

if TYPE_CHECKING:
    from engine.log_config import LogConfig

NO_LIMIT = -1


def check_tiering(before: LogConfig | None, config: LogConfig, *, is_enabled: bool) -> None:
    """Check the new config of a topic. `before` is the present one; `is_enabled`: the broker has a tier.

    Raises InvalidConfig.
    """
    if not config.remote_storage:
        if before is not None and before.remote_storage and not config.remote_delete_on_disable:
            raise InvalidConfig(
                "It is invalid to disable remote storage without deleting remote data. If you want to keep the remote "
                "data and turn to read only, please set `remote.storage.enable=true,remote.log.copy.disable=true`. If "
                "you want to disable remote storage and delete all remote data, please set "
                "`remote.storage.enable=false,remote.log.delete.on.disable=true`."
            )
        return
    if not is_enabled:
        raise InvalidConfig(
            "Tiered Storage functionality is disabled in the broker. Topic cannot be configured with remote log "
            "storage."
        )
    if config.cleanup_policy - {CleanupPolicy.DELETE}:
        raise InvalidConfig(
            "Remote log storage only supports topics with cleanup.policy=delete or cleanup.policy being an empty list."
        )
    _check_local("bytes", config.retention_size_bytes, config.local_retention_size_bytes)
    _check_local("ms", config.retention_ms, config.local_retention_ms)
    if config.remote_copy_disabled:
        _check_same("bytes", config.retention_size_bytes, config.local_retention_size_bytes)
        _check_same("ms", config.retention_ms, config.local_retention_ms)


def _check_local(unit: str, total: int, local: int) -> None:
    if total <= NO_LIMIT or local == AS_RECORDS:
        return
    wrong = f"Invalid value {local} for configuration local.retention.{unit}: "
    if local == NO_LIMIT:
        raise InvalidConfig(f"{wrong}Value must not be -1 as retention.{unit} value is set as {total}.")
    if local > total:
        raise InvalidConfig(f"{wrong}Value must not be more than retention.{unit} property value: {total}")


def _check_same(unit: str, total: int, local: int) -> None:
    if local not in (AS_RECORDS, total):
        raise InvalidConfig(
            f"When `remote.log.copy.disable` is set to true, the `local.retention.{unit}` and `retention.{unit}` must "
            "be set to the identical value because there will be no more logs copied to the remote storage."
        )
