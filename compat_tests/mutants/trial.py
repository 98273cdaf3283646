"""The mutation test: it applies a mutant to a copy of the sources, and lets the long tests look for it.

The product has no switches for mutants. A patch that does not apply any more has to be written again. The head of a
patch says what the mutant does and which test catches it; that test runs first.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from testkit.ledger import SUMMARY
from tools.packages import PACKAGES

ROOT = Path(__file__).resolve().parents[2]
PATCHES = Path(__file__).parent / "patches"
CAUGHT_WITHIN_S = 600
JOBS = str(os.cpu_count() or 1)
CAUGHT_BY = re.compile(r"^Caught-by: (.+)$", re.MULTILINE)
CASE = re.compile(r"^Case: (\S+)\n", re.MULTILINE)  # the function that caught it last, which runs first
# A patch with outdated names breaks the product in another way than intended: such an error is no verdict.
ROTTEN = re.compile(r"\b(Attribute|Name|Type|Import|ModuleNotFound)Error\b")


@dataclass(frozen=True)
class MutantTest:
    """A test that finds mutants. `verdict`: a pattern of its output that reports a failure; a crash of the test is no
    verdict. `repeat`: the format of a command that shows the failure again, for the command of the pattern."""

    name: str
    command: tuple[str, ...]
    verdict: str
    repeat: str = "{}"


FAILED_CASE = r"^FAILED (?P<command>\S+)(?P<words>.*)"
HANGS = re.compile(r"^\.*Timeout \(0:\d\d:\d\d\)!", re.MULTILINE)  # of pytest, which ends a test that takes minutes
PYTEST = "python -m pytest "


def cases(name: str, *places: str) -> MutantTest:
    """The tests in files or folders, or test functions, up to the first one that fails."""
    return MutantTest(name, ("pytest", "-q", "-rf", "-x", *places), FAILED_CASE, f"{PYTEST}{{}}")


SEVERAL_BROKERS = "kafkawire/tests/test_deleted_records.py", "kafkawire/tests/test_coordinators_over_brokers.py"
NAMED_CASES = (
    "engine/files/tests/test_disk.py",
    "engine/files/tests/test_kernel_sync.py",
    "engine/logs/tests/test_footer.py",
    "engine/logs/tests/test_producer_recovery.py",
    "engine/reading/tests/test_reader.py",
    "engine/reading/tests/test_wrong_timestamps.py",
    "engine/batches/tests/test_codecs.py",
    "engine/batches/tests/test_record_checks.py",
    "engine/upkeep/tests/test_retention_keeper.py",
    "engine/logs/tests/test_sparse_index.py",
    "tiering/tests/test_cold_tier.py",
    "tiering/tests/test_manifest_log.py",
    "tiering/tests/test_partition_tier.py",
    "kafkawire/adapters/tests/test_dir_changes.py",
    "kafkawire/adapters/tests/test_state_logs.py",
    "kafkawire/adapters/tests/test_measured_store.py",
    "kafkawire/adapters/tests/test_tier_cluster.py",
    "kafkawire/adapters/tests/test_tier_deletions.py",
    "kafkawire/http/tests/test_health.py",
    "kafkawire/http/tests/test_metadata_metrics.py",
    "engine/log_dirs/tests/test_local_starts.py",
    "engine/log_dirs/tests/test_homes.py",
    "kafkawire/process/tests/test_restored_transactions.py",
    "engine/log_dirs/tests/test_truncation.py::test_j2_every_crash_state_of_a_truncation_of_several_logs",
    "engine/commit/tests/test_group_committer.py",
    "engine/commit/tests/test_recompression.py",
    "engine/commit/tests/test_expected_gaps.py",
    "engine/compaction/tests/test_copies.py",
    "engine/tests/test_closing.py",
    "engine/tests/test_partition_changes.py",
    "engine/offline/tests/test_repair.py",
    "engine/tests/test_unreadable.py",
    "engine/tests/test_reopening.py",
    "engine/partitions/tests/test_follower.py",
    "engine/partitions/tests/test_joining.py",
    "engine/partitions/tests/test_confirmed_reads.py",
    "engine/partitions/tests/test_replica.py",
    "engine/replication/tests/test_replicas.py",
    "engine/replication/tests/test_standing.py",
    "engine/replication/tests/test_confirmations.py",
    "engine/replication/tests/test_fetch_state.py",
    "kafkawire/replication/tests/test_confirming.py",
    "kafkawire/replication/tests/test_fetcher.py",
    "kafkawire/replication/tests/test_followers.py",
    "kafkawire/replication/tests/test_replica_events.py",
    "kafkawire/tests/test_link_sessions.py",
    "kafkawire/tests/test_orderly_restarts.py",
    "kafkawire/tests/test_replica_fetch_size.py",
    "kafkawire/tests/test_recovery_elections.py",
    "kafkawire/tests/test_replicated_tier.py",
    "kafkawire/tests/test_repudiation.py",
    "kafkawire/tests/test_rollback.py",
    "kafkawire/tests/test_saturation.py",
    "kafkawire/server/tests/test_muting.py",
    "kafkawire/server/tests/test_tls.py",
    "kafkawire/security/tls/tests/test_listener_tls.py",
    "kafkawire/tests/test_slow_log_dirs.py",
    "kafkawire/security/tests/test_accepted_links.py",
    "kafkawire/tests/test_closed_replicas.py",
    "coordinator/groups/tests/test_loading.py",
    "coordinator/groups/tests/test_reads_alone.py",
    "coordinator/groups/tests/test_service.py",
    "coordinator/groups/tests/test_too_few_replicas.py",
    "coordinator/transactions/tests",
    "coordinator/tests/test_rollback.py",
    "coordinator/tests/test_cluster_transitions.py",
    "coordinator/tests/test_event_log.py",
    "coordinator/tests/test_bounded_cache.py",
    "coordinator/tests/test_restarting_replicas.py",
    "coordinator/tests/test_role_changes.py",
    "coordinator/tests/test_isr_proposals.py",
    "coordinator/tests/test_change_retention.py",
    "coordinator/tests/test_layout.py",
    "coordinator/tests/test_metadata_away.py",
    "coordinator/tests/test_producer_ids.py",
    "coordinator/tests/test_reassignments.py",
    "coordinator/tests/test_recovery.py",
    "coordinator/tests/test_lost_replicas.py",
    "coordinator/tests/test_reconcile.py",
    "coordinator/tests/test_zookeeper_connection.py",
    "coordinator/tests/test_zookeeper_session.py",
    "tiering/tests/test_followed.py",
    "engine/log_dirs/tests/test_strays.py",
    "kafkawire/tests/test_strays.py",
)
CONNECTORS = (
    "spark_connectors/jobs/audit/tests",
    "spark_connectors/jobs/comparison/tests/test_search.py",
    "spark_connectors/jobs/comparison/tests/test_sides.py",
    "spark_connectors/jobs/comparison/tests/test_verify.py",
    "spark_connectors/jobs/export/tests/test_driver.py",
    "spark_connectors/jobs/tests/test_digest.py",
    "spark_connectors/tests/test_offsets.py",
    "spark_connectors/records/tests/test_visible.py",
    "spark_connectors/source/tests/test_planner.py",
    "spark_connectors/sink/tests/test_relay.py",
    "spark_connectors/sink/tests/test_writers.py",
    "spark_connectors/segments/tests/test_files.py",
    "spark_connectors/segments/tests/test_plan.py",
    "spark_connectors/segments/tests/test_reading.py",
)
TESTS = (
    MutantTest(
        "crash images",
        ("engine.tests.crash_states", "--workloads", "0:1000", "--share", "0.05", "--budget-s", "150", "--jobs", JOBS),
        r"^(?P<command>python -m engine\.tests\.crash_states --workload [^:]+(?: --image [^:]+:[^:]+)?): (?P<words>.*)",
    ),
    MutantTest(
        "simulated broker",
        ("kafkawire.tests.simulation", "--seeds", "0:2000", "--budget-s", "300", "--jobs", JOBS),
        r"^seed \d+ FAILED: (?P<command>.*)\n  (?!simulation crashed)(?P<words>.*)",
    ),
    MutantTest(
        "simulated brokers",
        ("coordinator.tests.brokers_simulation", "--seeds", "0:400"),
        r"^seed \d+ FAILED: (?P<command>.*)\n  (?P<words>.*)",
    ),
    MutantTest(
        "simulated brokers that replicate",
        ("kafkawire.tests.cluster_simulation", "--seeds", "0:2000", "--budget-s", "300", "--jobs", JOBS),
        r"^seed \d+ FAILED: (?P<command>.*)\n  (?!simulation crashed)(?P<words>.*)",
    ),
    MutantTest(
        "replication, every order",
        ("kafkawire.tests.replication.model",),
        r"^(?P<command>python -m kafkawire\.tests\.replication\.model [^:]+): (?P<words>.*)",
    ),
    cases("named cases", *NAMED_CASES),  # for states that a single broker cannot reach, or seldom does
    cases("cases of several brokers", *SEVERAL_BROKERS),
    cases("cases of the connectors", *CONNECTORS),
)


@dataclass(frozen=True)
class Finding:
    """A failure that an test reports, and the command that shows it again in the same sources."""

    words: str
    command: str


@dataclass(frozen=True)
class TrialResult:
    """The test that caught a mutant, and its finding; None if no test caught it."""

    mutant: str
    seconds: float
    test: str | None = None
    finding: Finding | None = None


def mutants() -> list[str]:
    return sorted(path.stem for path in PATCHES.rglob("*.patch"))


def patch_of(mutant: str) -> Path:
    """Path of a mutant's patch, in the folder of the package that it changes. Raises ValueError if there is none."""
    (found,) = PATCHES.rglob(f"{mutant}.patch")
    return found


def finders_of(mutant: str) -> list[MutantTest]:
    """All tests, the one that the patch names first, and before it the case that the patch names. Raises ValueError if
    the patch names no test."""
    patch = patch_of(mutant).read_text(encoding="utf-8")
    named, case = CAUGHT_BY.search(patch), CASE.search(patch)
    if named is None or named.group(1) not in [one.name for one in TESTS]:
        raise ValueError(f"{mutant}: the patch does not say by which test it is caught")
    found = sorted(TESTS, key=lambda one: one.name != named.group(1))
    return found if case is None else [cases(named.group(1), case.group(1)), *found]


def record_case(result: TrialResult) -> None:
    """Write the case that has caught a mutant into its patch, if a single test function has."""
    finding, path = result.finding, patch_of(result.mutant)
    if finding is None or not finding.command.startswith(PYTEST) or "::" not in finding.command:
        return
    function = finding.command.removeprefix(PYTEST).partition("[")[0]
    patch = CASE.sub("", path.read_text(encoding="utf-8"))
    path.write_text(CAUGHT_BY.sub(rf"\g<0>\nCase: {function}", patch, count=1), encoding="utf-8")


def apply_mutant(mutant: str, directory: Path) -> None:
    """Make a copy of the sources with the mutant. Raises CalledProcessError if the patch does not apply."""
    for package in PACKAGES:
        shutil.copytree(ROOT / package, directory / package, ignore=shutil.ignore_patterns("__pycache__"))
    for file in ("pyproject.toml", "conftest.py"):
        shutil.copy(ROOT / file, directory)
    # Not within a repository: a checkout around the copy must not redirect the paths.
    environment = {**os.environ, "GIT_CEILING_DIRECTORIES": str(directory.parent)}
    command = ["git", "apply", str(patch_of(mutant))]
    subprocess.run(command, cwd=directory, env=environment, check=True, capture_output=True)


def try_mutant(mutant: str, directory: Path) -> TrialResult:
    """Run the tests one after the other, until one of them catches the mutant or `CAUGHT_WITHIN_S` is over."""
    started_s = time.monotonic()
    for test in finders_of(mutant):
        left_s = CAUGHT_WITHIN_S - (time.monotonic() - started_s)
        if left_s <= 0:
            break
        finding = run(test, directory, left_s)
        if finding is not None:
            return TrialResult(mutant, time.monotonic() - started_s, test.name, finding)
    return TrialResult(mutant, time.monotonic() - started_s)


def run(test: MutantTest, directory: Path, timeout_s: float) -> Finding | None:
    """The test's finding in the sources of `directory`; None without one. Raises RuntimeError if the test could not
    run."""
    environment = {**os.environ, "PYTHONPATH": str(directory)}
    environment.pop(SUMMARY, None)
    process = subprocess.Popen(
        [sys.executable, "-m", *test.command],
        cwd=directory,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    is_over = False
    try:
        output, _ = process.communicate(timeout=timeout_s)
    except subprocess.TimeoutExpired:
        is_over = True
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)  # its own processes with it
    if is_over:
        output, _ = process.communicate()
    found = re.search(test.verdict, output, re.MULTILINE)
    if found is not None and ROTTEN.search(found["words"]):
        raise RuntimeError(f"the patch is rotten: {found['words']}")
    if found is None and HANGS.search(output):
        return Finding("a test hangs", f"python -m {' '.join(test.command)}")
    if found is None and process.returncode != 0 and not is_over:
        raise RuntimeError(f"{test.name} did not run:\n{output[-2000:]}")
    return None if found is None else Finding(found["words"], test.repeat.format(found["command"]))
