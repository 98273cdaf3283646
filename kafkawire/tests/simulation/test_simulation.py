"""A seed always gives the same run, and its failure is reported. Running many seeds is a stage of the suite."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections import Counter

import pytest

from kafkawire.tests.simulation.checker import Anomaly
from kafkawire.tests.simulation.command import report
from kafkawire.tests.simulation.group_plan import plan_groups
from kafkawire.tests.simulation.plan import CRASHES, CRASHES_MIN, plan
from kafkawire.tests.simulation.run import Result


def start(seed: int, hash_seed: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "kafkawire.tests.simulation", "--seed", str(seed)]
    return subprocess.Popen(command, env={**os.environ, "PYTHONHASHSEED": hash_seed}, stdout=subprocess.PIPE, text=True)


def test_a_seed_gives_the_same_trace_in_every_process() -> None:
    for seed in (1, 2):
        outputs = [process.communicate(timeout=100)[0] for process in (start(seed, "1"), start(seed, "2"))]
        assert outputs[0] == outputs[1]
        assert re.search("trace [0-9a-f]{64}", outputs[0])


def test_seed_102_passes_with_a_session_lost_between_join_group_and_sync_group() -> None:
    """A session of seed 102 is lost between a leader's JoinGroup and its SyncGroup: the generation number is used
    again."""
    process = start(102, "1")
    output, _ = process.communicate(timeout=100)
    assert process.returncode == 0, output


def test_every_plan_has_faults_that_end_a_life() -> None:
    for seed in range(200):
        assert sum(kind in CRASHES for kind in plan(seed).faults) >= CRASHES_MIN


def test_most_plans_have_groups_in_both_view_modes() -> None:
    plans = [plan_groups(seed, plan(seed).topics) for seed in range(200)]
    modes = Counter(one.properties.get("offsets.view.mode") for one in plans)
    assert modes["cached"] + modes["direct"] > 160
    assert min(modes.values()) > 0


def test_a_failure_names_the_seed_and_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    report("python -m kafkawire.tests.simulation", Result(7, 300, 3, 4, "", (Anomaly("lost write", "orders-0"),)))
    output = capsys.readouterr().out
    assert "python -m kafkawire.tests.simulation --seed 7" in output
    assert "lost write: orders-0" in output
