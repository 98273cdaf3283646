"""`kafkawire tier` on the tier of a broker: output, changes and exit code."""

from __future__ import annotations

import json
from typing import Any

import pytest
import trio
import trio.testing
from click.testing import CliRunner, Result

from kafkawire.cli import main
from kafkawire.config.tests.test_tier_enforced import TIER, segments
from kafkawire.process.tests.test_restoration import lost
from kafkawire.testing import MemoryDeps
from tiering.stores.memory import HEALTHY, Fault

SETTINGS = {**TIER, "log_dirs": "/data", "listeners": "PLAINTEXT://memory:9092", "http_listeners": ""}


@pytest.fixture
def deps() -> MemoryDeps:
    """A store that has six segments of a topic, and nothing else."""
    made, _ = trio.run(lost, clock=trio.testing.MockClock(autojump_threshold=0))
    return made


def run(deps: MemoryDeps, command: str, *arguments: str, **settings: str) -> Result:
    given = {key.replace("_", "."): value for key, value in {**SETTINGS, **settings}.items()}
    options = [part for key, value in given.items() for part in ("--set", f"{key}={value}")]
    call = ["tier", command, *options, *arguments]
    return CliRunner().invoke(main, call, obj=deps.start_deps(), catch_exceptions=False)


def document(deps: MemoryDeps, command: str, *arguments: str) -> Any:
    result = run(deps, command, *arguments, "-o", "json")
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def test_status_shows_partitions_and_their_segments(deps: MemoryDeps) -> None:
    result = run(deps, "status")
    [_, row] = [line.split() for line in result.stdout.splitlines()]
    assert row[:4] == ["t-0", "0", "6", "6"]
    assert "1 topics" in result.stderr
    [partition] = document(deps, "status")["partitions"]
    assert (partition["topic"], partition["segments"], partition["end_offset"]) == ("t", 6, 6)


def test_verify_finds_a_missing_object(deps: MemoryDeps) -> None:
    assert document(deps, "verify") == {"objects": 6, "read_bytes": 0, "problems": []}
    assert document(deps, "verify", "--read")["read_bytes"] > 6 * 700_000
    key = segments(deps)[0]
    del deps.objects.objects[key]
    result = run(deps, "verify")
    assert result.exit_code == 1
    assert f"Error: {key} is missing" in result.stderr


def test_gc_deletes_an_unreferenced_object_except_in_a_dry_run(deps: MemoryDeps) -> None:
    assert document(deps, "gc") == {"leftovers": [], "deleted": 0}
    strange = segments(deps)[0] + "x"
    deps.objects.objects[strange] = b"x", 0
    assert document(deps, "gc", "--dry-run")["deleted"] is None
    assert strange in deps.objects.objects
    assert "no manifest names it" in run(deps, "gc").stdout
    assert strange not in deps.objects.objects
    assert len(segments(deps)) == 6


def test_restore_changes_nothing_in_a_dry_run_and_refuses_a_second_run(deps: MemoryDeps) -> None:
    result = run(deps, "restore", "--dry-run")
    assert "nothing was changed" in result.stderr
    assert not deps.filesystem.exists("/data")
    result = run(deps, "restore")
    assert result.exit_code == 0
    assert "2 committed offsets, 1 of them moved" in result.stderr
    result = run(deps, "restore")
    assert result.exit_code == 1
    assert "/data/metadata is not empty" in result.stderr or "the metadata store has a cluster" in result.stderr


def test_commands_fail_with_an_error_when_the_store_is_unreachable_or_unset(deps: MemoryDeps) -> None:
    deps.objects.fault = lambda _operation, _key: Fault(is_lost=True)
    for command in ("status", "verify", "gc", "restore"):
        result = run(deps, command)
        assert result.exit_code == 1
        assert result.stderr.startswith("Error: list")
    deps.objects.fault = lambda _operation, _key: HEALTHY
    assert "has nothing of cluster other" in run(deps, "restore", "--cluster-id", "other").stderr
    result = run(deps, "status", tier_store="", remote_log_storage_system_enable="false")
    assert "tier.store does not say" in result.stderr
