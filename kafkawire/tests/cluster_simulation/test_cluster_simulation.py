"""A seed always gives the same run. Running many seeds is a stage of the suite."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections import Counter

from kafkawire.tests.cluster_simulation.plan import FAILOVERS, FAILOVERS_MIN, FaultKind, plan


def start(seed: int, hash_seed: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "kafkawire.tests.cluster_simulation", "--seed", str(seed)]
    return subprocess.Popen(command, env={**os.environ, "PYTHONHASHSEED": hash_seed}, stdout=subprocess.PIPE, text=True)


def test_a_seed_gives_the_same_trace_in_every_process() -> None:
    outputs = [process.communicate(timeout=100)[0] for process in (start(5, "1"), start(5, "2"))]
    assert outputs[0] == outputs[1]
    assert re.search("trace [0-9a-f]{64}", outputs[0])


def test_every_plan_has_faults_by_which_another_broker_comes_to_lead() -> None:
    for seed in range(200):
        assert sum(kind in FAILOVERS for kind in plan(seed).faults) >= FAILOVERS_MIN


def test_every_fault_is_in_many_plans() -> None:
    counts = Counter(kind for seed in range(500) for kind in {*plan(seed).faults})
    assert counts.keys() == {*FaultKind}
    assert min(counts.values()) > 50


def test_every_partition_has_a_producer_that_waits_for_all_in_sync() -> None:
    for seed in range(200):
        one = plan(seed)
        assert {writer.targets[0] for writer in one.writers if writer.acks == -1} == {*one.targets}


def test_many_seeds_have_transactions_on_replicas_that_are_equal_in_the_end() -> None:
    plans = [one for one in map(plan, range(200)) if one.transactions.targets]
    assert len(plans) > 50
    assert not any(one.transactions.is_compacted(target) for one in plans for target in one.transactions.targets)
    assert all(topic.replication_factor == 3 for one in plans for topic in one.transactions.topics)
