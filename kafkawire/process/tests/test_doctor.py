"""Findings of the doctor for each fact."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from kafkawire.config.broker_config import load
from kafkawire.process.doctor import DirFacts, Finding, MachineFacts, Severity, examine
from kafkawire.process.machine_facts import filesystem_of

FINE = MachineFacts(descriptors_max=100_000, memory_size_bytes=8 << 30)
DIR = DirFacts(path="/data", exists=True, device=1, filesystem="ext4", sync_median_ms=0.4, owner=("c", 1))
PROBLEM, WARNING, NOTE = Severity.PROBLEM, Severity.WARNING, Severity.NOTE


def found(*dirs: DirFacts, machine: MachineFacts = FINE, **properties: str) -> list[Finding]:
    config, _ = load({key.replace("_", "."): value for key, value in properties.items()})
    return list(examine(config, machine, dirs or [DIR]))


def test_nothing_to_complain_about() -> None:
    assert found() == []


@pytest.mark.parametrize(
    ("changes", "severity", "text"),
    [
        ({"reason": "it is no directory"}, PROBLEM, "it is no directory"),
        ({"exists": False, "owner": None}, NOTE, "it is not there yet: the broker will make it"),
        ({"is_in_use": True, "was_stopped_cleanly": False}, NOTE, "a broker uses it"),
        ({"was_stopped_cleanly": False}, NOTE, "the broker was not stopped in order"),
        ({"owner": ("c", 7)}, PROBLEM, "it belongs to broker 7 of cluster c, not to broker 1"),
        ({"filesystem": "tmpfs"}, WARNING, "it is on tmpfs, which forgets"),
        ({"filesystem": "nfs4"}, WARNING, "it is on nfs4: two machines may take it"),
        ({"used_ratio": 0.96}, PROBLEM, "the disk is 96% full: from 95% on nothing is appended"),
        ({"used_ratio": 0.9}, WARNING, "the disk is 90% full"),
        ({"files_left_ratio": 0.01}, WARNING, "the disk has room for 1.0% of its files only"),
        ({"sync_median_ms": 25.0}, WARNING, "fdatasync takes 25 ms"),
    ],
)
def test_a_log_dir(changes: dict[str, object], severity: Severity, text: str) -> None:
    [finding] = found(dataclasses.replace(DIR, **changes))  # type: ignore[arg-type]
    assert (finding.severity, finding.subject) == (severity, "log dir /data")
    assert finding.text.startswith(text)


def test_log_dirs_together() -> None:
    [on_one_disk] = found(DIR, dataclasses.replace(DIR, path="/more"))
    assert on_one_disk.text == "/data, /more are on one disk"
    [of_two_clusters] = found(DIR, dataclasses.replace(DIR, path="/more", device=2, owner=("d", 1)))
    assert (of_two_clusters.severity, of_two_clusters.text) == (PROBLEM, "they are of different clusters: c, d")


def test_limits() -> None:
    many = dataclasses.replace(DIR, partitions=10_000)
    [files] = found(many, machine=dataclasses.replace(FINE, descriptors_max=4096))
    assert files.text.startswith("a process may open 4,096; 11,000 would do for 10,000 partitions")
    [memory] = found(machine=dataclasses.replace(FINE, memory_size_bytes=256 << 20))
    assert memory.text.startswith("256 MiB")


def test_listeners() -> None:
    [everywhere] = found(listeners="PLAINTEXT://0.0.0.0:9092")
    assert (everywhere.severity, everywhere.subject) == (NOTE, "listener PLAINTEXT")
    assert found(listeners="PLAINTEXT://0.0.0.0:9092", advertised_listeners="PLAINTEXT://kafka:9092") == []
    [open_to_all] = found(http_listeners="http://0.0.0.0:9644")
    assert open_to_all.text.startswith("every client that reaches it can read every topic")


def test_the_filesystem_is_that_of_the_nearest_mount() -> None:
    mounts = "/dev/a / ext4 rw 0 0\ntmpfs /srv tmpfs rw 0 0\nhost:/x /srv/two\\040words nfs4 rw 0 0\n"
    assert filesystem_of(Path("/var/data"), mounts) == "ext4"
    assert filesystem_of(Path("/srv/data"), mounts) == "tmpfs"
    assert filesystem_of(Path("/srv/two words/data"), mounts) == "nfs4"
