"""What help costs: a shell that completes, and a person who looks, should not wait for a broker to be imported."""

from __future__ import annotations

import resource
import subprocess

import pytest

from compat_tests.harness.kafkawire_broker import KAFKAWIRE

CPU_MAX_S = 0.150
ATTEMPTS = 10  # the least of them is what it costs; the others had to share their core


@pytest.mark.parametrize(
    "command", ["", "produce", "consume", "bench produce", "demo", "groups", "topics create", "serve", "doctor"]
)
def test_help_is_quick(command: str) -> None:
    assert min(cpu_s(*command.split(), "--help") for _ in range(ATTEMPTS)) <= CPU_MAX_S


def cpu_s(*arguments: str) -> float:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([str(KAFKAWIRE), *arguments], stdout=subprocess.DEVNULL, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
