"""The id of the cluster that a broker's log dirs belong to."""

import pytest

from engine.errors import StoreRefused
from engine.log_dirs.layout import META, Identity, ensure_dir, write_identity
from engine.testing.simulated_disk import SimulatedFileSystem
from kafkawire.adapters.known_cluster import known_cluster_id


def filesystem_with(**clusters: str) -> SimulatedFileSystem:
    filesystem = SimulatedFileSystem()
    for name, cluster_id in clusters.items():
        ensure_dir(filesystem, f"/{name}")
        write_identity(filesystem, f"/{name}", Identity(cluster_id, 1))
    return filesystem


def test_new_log_dirs_are_of_no_cluster() -> None:
    assert known_cluster_id(SimulatedFileSystem(), ["/a", "/b"]) is None


def test_a_readable_log_dir_gives_the_cluster_id_despite_damaged_log_dirs() -> None:
    filesystem = filesystem_with(a="ours", b="ours", c="other")
    filesystem.open(f"/c/{META}").truncate(0)
    assert known_cluster_id(filesystem, ["/new", "/c", "/a", "/b"]) == "ours"


def test_log_dirs_of_several_clusters_refuse_the_start() -> None:
    with pytest.raises(StoreRefused, match="several clusters: other, ours"):
        known_cluster_id(filesystem_with(a="ours", b="other"), ["/a", "/b"])
