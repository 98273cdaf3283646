"""The metadata store that a broker's configuration names: ZooKeeper servers, or a directory of its own."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import trio

from coordinator.errors import CannotStart
from coordinator.metadata_store.embedded import open_embedded

if TYPE_CHECKING:
    from coordinator.metadata_store.store import MetadataStore
    from coordinator.metadata_store.zookeeper import ZooKeeperSettings
    from kafkawire.config.broker_config import Config


def metadata_directory(config: Config) -> Path:
    """The directory of the metadata of a broker that stands alone."""
    return (config.metadata_dir or config.log_dirs[0] / "metadata").absolute()


async def open_metadata(config: Config) -> MetadataStore:
    """Open the metadata store. Raises CannotStart."""
    if not config.is_in_cluster:
        return await open_embedded(metadata_directory(config), trio.to_thread.run_sync)
    from coordinator.metadata_store.zookeeper import open_zookeeper

    return await open_zookeeper(zookeeper_settings(config))


def zookeeper_settings(config: Config) -> ZooKeeperSettings:
    """ZooKeeper settings of a broker in a cluster. Raises CannotStart if the credentials cannot be read."""
    from coordinator.metadata_store.zookeeper import ZooKeeperSettings

    credentials = config.zookeeper_credentials_file
    return ZooKeeperSettings(
        config.zookeeper_connect,
        config.zookeeper_session_timeout_ms,
        config.zookeeper_connection_timeout_ms,
        None if credentials is None else credentials_in(credentials),
    )


def credentials_in(path: Path) -> str:
    """The content of a `zookeeper.credentials.file`, without white space around it. Raises CannotStart."""
    try:
        return path.read_text().strip()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise CannotStart(f"zookeeper.credentials.file: {path} cannot be read: {reason}") from error
