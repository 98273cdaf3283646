"""Runs the test suite in stages, cheap to dear, and stops at the first red one.

`suite.py check` is the quick part, `test` is everything CI runs, `long` is too long for CI. Stages that wait more than
they compute run side by side, and each is printed when it ends; the others run alone. Each has a time-out, after which
all its processes are killed, and prints its seconds; the last line is `N passed, N failed, N skipped`. With CI=true a
test that was skipped because a tool is missing counts as failed: on a user's machine it is a skip with its reason
printed.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as ET
from collections import deque
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

ROOT = Path(__file__).resolve().parent.parent
BIN = Path(sys.executable).parent
LEDGER = "docs/ledger/runs.jsonl"
SUMMARY = "KAFKAWIRE_LEDGER_SUMMARY"  # the file in which a stage may leave a line for the ledger
TEMPORARY = "PYTEST_DEBUG_TEMPROOT"  # pytest's name for where it makes directories of tests
MISSING_TOOL = "needs "  # how every skip for a missing tool begins
JOBS = str(os.cpu_count() or 1)  # of stages that run alone
SIDE_BY_SIDE_MAX = 3  # as many stages run side by side: two of them often wait
POLL_EVERY_S = 0.1  # whether one of them is over
LEAVE_TIMEOUT_S = 60  # for fixtures to stop their brokers


@dataclass
class Tally:
    passed: int = 0
    failed: int = 0
    skipped: int = 0
    summary: str = ""  # a stage's own words for the ledger

    def add(self, other: Tally) -> None:
        self.passed += other.passed
        self.failed += other.failed
        self.skipped += other.skipped


@dataclass(frozen=True)
class Stage:
    """A command of the suite. A pytest stage is counted test by test, any other as one."""

    name: str
    command: list[str]
    timeout_s: int
    pytest: bool = False
    environment: dict[str, str] = field(default_factory=dict)
    has_company: bool = False  # it waits more than it computes: another may run beside it


def tool(name: str, *arguments: str) -> list[str]:
    return [str(BIN / name), *arguments]


def script(path: str, *arguments: str) -> list[str]:
    return [sys.executable, path, *arguments]


def pytest_stage(name: str, timeout_s: int, *arguments: str, **environment: str) -> Stage:
    return Stage(name, tool("pytest", "-q", *arguments), timeout_s, pytest=True, environment=environment)


def parallel_stage(name: str, timeout_s: int, *arguments: str, **environment: str) -> Stage:
    """A stage as of `pytest_stage` that may run beside others."""
    return replace(pytest_stage(name, timeout_s, *arguments, **environment), has_company=True)


def simulation(seeds: str, *arguments: str) -> list[str]:
    """Simulation of the whole broker with crashes, on all cores; it stops at the first seed that fails."""
    command = [sys.executable, "-m", "kafkawire.tests.simulation", "--seeds", seeds]
    return [*command, "--jobs", JOBS, *arguments]


def cluster_simulation(seeds: str, *arguments: str) -> list[str]:
    """Simulation of three whole brokers that replicate; it stops at the first seed that fails."""
    command = [sys.executable, "-m", "kafkawire.tests.cluster_simulation", "--seeds", seeds]
    return [*command, "--jobs", JOBS, *arguments]


def brokers_simulation(seeds: str, *arguments: str) -> list[str]:
    """Simulation of the control planes of three brokers, on one store that fails."""
    return [sys.executable, "-m", "coordinator.tests.brokers_simulation", "--seeds", seeds, "--jobs", JOBS, *arguments]


def crash_images(workloads: str, *arguments: str) -> list[str]:
    """Reopening of crash images: possible contents of a disk after a crash."""
    command = [sys.executable, "-m", "engine.tests.crash_states", "--workloads", workloads]
    return [*command, "--jobs", JOBS, *arguments]


def bit_flips(count: int, *arguments: str) -> list[str]:
    """Data directories with one wrong bit, opened."""
    command = [sys.executable, "-m", "engine.tests.bit_flips", "--flips", str(count)]
    return [*command, "--jobs", JOBS, *arguments]


def within(room: str, *names: str) -> tuple[str, ...]:
    """Paths of folders or files of a room of `compat_tests`."""
    return tuple(f"compat_tests/{room}/{name}" for name in names)


def tests_of(room: str, file: str, *names: str) -> tuple[str, ...]:
    """Some tests of a file in a room of `compat_tests`."""
    return within(room, *(f"{file}::test_{name}" for name in names))


CHECK = [
    Stage("format", tool("ruff", "format", "--check", "."), 60),
    Stage("lint", tool("ruff", "check", "."), 60),
    Stage("types", tool("mypy"), 240),
    Stage("import contracts", tool("lint-imports"), 60),
    Stage("language", script("tools/language.py", "check"), 60),
    pytest_stage("unit tests", 960, "-n", JOBS, "--dist", "worksteal", "-m", "not fuzz"),
    pytest_stage("mutants, as patches", 300, "compat_tests/mutants", "-k", "not is_caught"),
]
CLIENTS = within("clients", "kcat", "confluent", "kafka_python", "aiokafka", "consoles")
WITH_CLIENTS = (*CLIENTS, *within("features", "cli", "restart", "compaction"))
OTHER_LANGUAGES = within("clients", "go", "kafka_go", "node", "rust", "sarama")
APPLICATIONS = within("applications", "connect", "mirror", "streams", "registry")
FRAMEWORKS = (
    *within("clients", "platformatic"),
    *within("applications", "spring", "flink", "camel", "quarkus", "quix"),
)
ALL_CLIENTS = (
    *WITH_CLIENTS,
    *OTHER_LANGUAGES,
    *within("features", "groups", "transactions"),
    *within("clients", "java"),
    *APPLICATIONS,
)
SPARK_STREAMS = within("applications", "spark/test_streams.py", "spark/test_transactions.py")
SPARK_KILLS = within("applications", *(f"spark/test_{name}.py" for name in ("kills", "past_brokers", "sink", "tiered")))
OTHER_SPARK = ("compat_tests/applications/spark", *(f"--ignore={one}" for one in (*SPARK_STREAMS, *SPARK_KILLS)))
METADATA_CAMPAIGN = "compat_tests/faults/test_metadata_campaign.py"  # minutes, most of them for elections
STREAMS_CAMPAIGN = "compat_tests/faults/test_streams.py"  # minutes, most of them for a group to be complete again
ROLLING_RESTARTS = "compat_tests/faults/test_rolling_restarts.py"  # clients that give up soon: on a quiet machine
STRAIN_CAMPAIGN = "compat_tests/faults/test_strain.py"  # a quarter of an hour for each kind of fault
OF_LONG = METADATA_CAMPAIGN, STREAMS_CAMPAIGN, ROLLING_RESTARTS, STRAIN_CAMPAIGN
LATER = tuple(f"--ignore={one}" for one in OF_LONG)
TIERS_ON_S3 = ("tiers", "clients", "restore", "bad_stores", "store_kills", "store_outages")
OF_THREE = {"KAFKAWIRE_COMPAT_TARGET": "cluster"}
CLIENTS_OF_THREE = (  # each family of clients once, and all of them on the same three brokers
    *within(
        "clients",
        "kcat",
        "confluent/test_exercise.py",
        "confluent/test_admin.py",
        "kafka_python",
        "aiokafka",
        "consoles",
    ),
    *within("features", "cli/test_brokers.py", "cli/test_topics.py"),
    *within("clients", "java/test_exercise.py", "java/test_topics.py"),
    *tests_of("clients", "java/test_cluster_tools.py", "log_dirs", "endpoints"),
    *tests_of(
        "clients",
        "java/test_reassignments.py",
        "replicas_move_while_records_come_and_go",
        "three_replicas_change_their_order_and_their_number",
    ),
    *OTHER_LANGUAGES,
    *within("features", "groups/test_consumer_groups.py", "groups/test_positions.py"),
    *within("applications", "streams"),
    *tests_of("features", "transactions/test_producers.py", "commit_and_abort", "offsets"),
    *tests_of("applications", "spark/test_batch.py", "write_and_read"),
    *tests_of("applications", "spark/test_streams.py", "from_topic_to_topic", "topics_and_partitions_that_come_later"),
)
NEWEST = ("-m", "not oldest")
OLDEST = ("-m", "oldest", *within("clients", "confluent", "kafka_python", "aiokafka", "java"), *OTHER_LANGUAGES)
TEST = [
    *CHECK,
    pytest_stage("hostile input", 240, "-m", "fuzz"),
    Stage("crash images", crash_images("0:1000", "--share", "0.02", "--budget-s", "25"), 90),
    Stage("flipped bits", bit_flips(1000, "--budget-s", "20"), 90),
    Stage("simulated broker", simulation("0:1000", "--budget-s", "30"), 90),
    Stage("simulated brokers that replicate", cluster_simulation("0:1000", "--budget-s", "40"), 120),
    Stage("simulated brokers", brokers_simulation("0:150"), 180),
    # The longest of those begins early: nothing shall be left that waits for it.
    parallel_stage("data dirs of earlier versions", 120, "compat_tests/features/formats"),
    parallel_stage("the README", 600, "compat_tests/features/readme"),
    parallel_stage("mutants with a fast test", 720, "compat_tests/mutants", "-k", "is_caught"),
    parallel_stage("clients", 1200, *NEWEST, "compat_tests/features/serve", *WITH_CLIENTS),
    parallel_stage("spark: kills, past brokers, sinks", 900, *SPARK_KILLS, "--durations=15"),
    parallel_stage("spark: streams and transactions", 900, *SPARK_STREAMS, "--durations=15"),
    parallel_stage("installation", 600, "compat_tests/features/install"),
    parallel_stage("spark: all else", 900, *OTHER_SPARK, "--durations=15"),
    parallel_stage("object stores and topics in the tier", 1080, *within("features", "object_stores", "tiering")),
    parallel_stage("kills, power cuts, failing disks", 1080, "compat_tests/faults", *LATER),
    parallel_stage("connect, mirrors, streams, a registry", 720, *APPLICATIONS),
    parallel_stage("groups of stock clients", 600, "compat_tests/features/groups"),
    parallel_stage("jobs", 900, "compat_tests/applications/jobs"),
    parallel_stage("clients of three brokers", 1200, *NEWEST, *CLIENTS_OF_THREE, **OF_THREE),
    parallel_stage("transactions of stock clients", 600, "compat_tests/features/transactions"),
    parallel_stage("java tools", 720, *NEWEST, "compat_tests/clients/java"),
    parallel_stage("clients in other languages", 600, *NEWEST, *OTHER_LANGUAGES),
    parallel_stage("security of stock clients", 300, "compat_tests/features/security"),
    parallel_stage("compiled modules", 900, "compat_tests/features/compiled"),
    parallel_stage("a ZooKeeper ensemble", 480, "compat_tests/features/zookeeper"),
    parallel_stage("a cluster of three", 720, "compat_tests/features/cluster"),
    parallel_stage("differential", 360, "compat_tests/differential"),
    pytest_stage("benchmarks at toy size", 720, "benchmarks"),
]
LONG: list[Stage] = [
    Stage("crash images, six workloads at every operation", crash_images("0:6"), 3600),
    Stage("flipped bits", bit_flips(3000), 3600),
    pytest_stage(
        "log against its model, 5,000 histories",
        3600,
        "engine/tests/test_log_model.py",
        KAFKAWIRE_LOG_MODEL_EXAMPLES="5000",
    ),
    pytest_stage(
        "log with transactions against its model, 2,000 histories",
        3600,
        "engine/tests/test_transaction_model.py",
        KAFKAWIRE_LOG_MODEL_EXAMPLES="2000",
    ),
    Stage("simulated broker, 5,000 seeds", simulation("0:5000"), 7200),
    Stage("simulated brokers that replicate, 10,000 seeds", cluster_simulation("0:10000"), 36000),
    Stage("simulated brokers, 2,000 seeds", brokers_simulation("0:2000", "--keep-going"), 3600),
    Stage(
        "elections, all orders of eight steps", script("-m", "coordinator.tests.election_search", "--depth", "8"), 7200
    ),
    Stage("replication, all that limits allow", script("-m", "kafkawire.tests.replication.model", "--deep"), 10800),
    Stage("mutants", script("-m", "compat_tests.mutants"), 7200),
    pytest_stage("100 kills", 3600, "compat_tests/faults/test_kills.py", KAFKAWIRE_CHAOS_KILLS="100"),
    pytest_stage("50 power cuts", 3600, "compat_tests/faults/test_power_cuts.py", KAFKAWIRE_CHAOS_CUTS="50"),
    pytest_stage(
        "100 kills of the broker and 100 of transformers",
        3600,
        "compat_tests/faults/test_transformers.py",
        "-k",
        "kills",
        KAFKAWIRE_CHAOS_TRANSACTION_KILLS="100",
    ),
    pytest_stage(
        "25 power cuts of the broker and 25 kills of transformers",
        3600,
        "compat_tests/faults/test_transformers.py",
        "-k",
        "cuts",
        KAFKAWIRE_CHAOS_TRANSACTION_CUTS="25",
    ),
    pytest_stage(
        "2,000 transactions with late and lost requests",
        3600,
        "compat_tests/faults/test_late_requests.py",
        KAFKAWIRE_CHAOS_LATE_TRANSACTIONS="2000",
    ),
    pytest_stage(
        "5,000 changes of metadata, with faults of brokers and ZooKeeper",
        3600,
        METADATA_CAMPAIGN,
        KAFKAWIRE_METADATA_CHANGES="5000",
    ),
    pytest_stage(
        "twenty minutes of faults of three brokers, their disks and their network",
        3600,
        "compat_tests/faults/test_replication_campaign.py",
        KAFKAWIRE_CHAOS_REPLICATION_S="1200",
    ),
    pytest_stage(
        "an hour of ordinary trouble of a saturated cluster",
        7200,
        STRAIN_CAMPAIGN,
        KAFKAWIRE_CHAOS_STRAIN_S="3600",
    ),
    Stage("confirmed reads, all orders", script("-m", "engine.partitions.tests.confirmation_model"), 3600),
    pytest_stage(
        "20 rolling restarts of three brokers that replicate, under stock clients",
        3600,
        ROLLING_RESTARTS,
        KAFKAWIRE_CHAOS_ROLLS="20",
    ),
    pytest_stage(
        "10 kills of one of three brokers under a word count of Kafka Streams",
        3600,
        STREAMS_CAMPAIGN,
        KAFKAWIRE_CHAOS_STREAMS_KILLS="10",
    ),
    pytest_stage(
        "100 kills of one of three brokers, 20 rolling restarts, a minute without ZooKeeper",
        3600,
        "compat_tests/faults/test_three_brokers.py",
        KAFKAWIRE_CHAOS_KILLS="100",
        KAFKAWIRE_CHAOS_ROLLS="20",
        KAFKAWIRE_ZOOKEEPER_AWAY_S="60",
    ),
    pytest_stage(
        "200 kills of a stream of Spark's",
        3600,
        "compat_tests/applications/spark/test_kills.py",
        KAFKAWIRE_CHAOS_SPARK_KILLS="200",
    ),
    pytest_stage(
        "40 kills of a stream of Spark's on Apache Kafka",
        2400,
        "compat_tests/applications/spark/test_kills.py",
        KAFKAWIRE_CHAOS_SPARK_KILLS="40",
        KAFKAWIRE_COMPAT_TARGET="kafka",
    ),
    pytest_stage(
        "60 rounds of reads past the broker",
        3600,
        "compat_tests/applications/spark/test_past_brokers.py",
        KAFKAWIRE_CHAOS_SPARK_ROUNDS="60",
    ),
    pytest_stage(
        "300 kills at requests to the object store",
        3600,
        "compat_tests/features/tiering/test_store_kills.py",
        KAFKAWIRE_CHAOS_STORE_KILLS="300",
    ),
    pytest_stage(
        "an object store that is away for three minutes",
        1200,
        "compat_tests/features/tiering/test_store_outages.py",
        KAFKAWIRE_CHAOS_STORE_AWAY_S="180",
    ),
    pytest_stage(
        "an export of 5 M records, killed ten times, to each format of tables",
        3600,
        "compat_tests/applications/jobs/test_export_kills.py",
        KAFKAWIRE_CHAOS_EXPORT_ROWS="5000000",
        KAFKAWIRE_CHAOS_EXPORT_KILLS="10",
    ),
    pytest_stage(
        "object stores and the tier on MinIO",
        3600,
        *within("features", "object_stores", *(f"tiering/test_{name}.py" for name in TIERS_ON_S3)),
        KAFKAWIRE_S3_SERVER="minio",
    ),
    pytest_stage("a million mutated frames", 3600, "-m", "fuzz", KAFKAWIRE_FUZZ_FRAMES="1000000"),
    pytest_stage("codec oracle, 40 seeds", 3600, "kafkawire/wire/tests/test_oracle.py", KAFKAWIRE_ORACLE_SEEDS="40"),
    pytest_stage("oldest clients", 1800, *OLDEST),
    pytest_stage("frameworks", 1200, *FRAMEWORKS),
    pytest_stage("frameworks on three brokers", 1200, *FRAMEWORKS, **OF_THREE),
    pytest_stage(
        "connectors installed for the newest Spark",
        600,
        "compat_tests/features/install/test_spark.py",
        KAFKAWIRE_PYSPARK="newest",
    ),
    pytest_stage(
        "connectors' sources with the newest Spark",
        1800,
        *within("applications", "spark/test_kafkawire_source.py", "spark/test_filters.py"),
        KAFKAWIRE_PYSPARK="newest",
    ),
    pytest_stage(
        "connectors' sink with the newest Spark",
        1800,
        "compat_tests/applications/spark/test_sink.py",
        KAFKAWIRE_PYSPARK="newest",
    ),
    # The expectations of the black-box tests must hold for Apache Kafka too.
    pytest_stage("clients against Apache Kafka", 2400, *ALL_CLIENTS, KAFKAWIRE_COMPAT_TARGET="kafka"),
    pytest_stage("frameworks against Apache Kafka", 1200, *FRAMEWORKS, KAFKAWIRE_COMPAT_TARGET="kafka"),
    pytest_stage(
        "spark against Apache Kafka", 2400, "compat_tests/applications/spark", KAFKAWIRE_COMPAT_TARGET="kafka"
    ),
    pytest_stage("all clients of three brokers", 3600, *ALL_CLIENTS, **OF_THREE),
    pytest_stage("spark on three brokers", 2400, "compat_tests/applications/spark", **OF_THREE),
]
SUITES = {"check": CHECK, "test": TEST, "long": LONG}


def outcome(case: ET.Element) -> str:
    """The result of a test in pytest's JUnit report: `passed`, `failed` or `skipped`."""
    if case.find("failure") is not None or case.find("error") is not None:
        return "failed"
    return "skipped" if case.find("skipped") is not None else "passed"


def count(report: Path, in_ci: bool) -> Tally:
    """Read pytest's JUnit report. In CI a skip for a missing tool is a failure, named on its own line.

    A test that was rerun is in the report more than once: the last result counts.
    """
    tally = Tally()
    cases = {(case.get("classname"), case.get("name")): case for case in ET.parse(report).iter("testcase")}
    for case in cases.values():
        result = outcome(case)
        if result == "failed":
            tally.failed += 1
        elif result == "skipped":
            reason = next(case.iter("skipped")).get("message", "")
            if in_ci and reason.startswith(MISSING_TOOL):
                print(f"FAILED {case.get('classname')}::{case.get('name')}: skipped in CI: {reason}")
                tally.failed += 1
            else:
                tally.skipped += 1
        else:
            tally.passed += 1
    return tally


class Run:
    """A running stage, in a session of its own, so that all its processes can be ended."""

    def __init__(self, stage: Stage, scratch: Path) -> None:
        self.stage = stage
        self._scratch = scratch
        self._report = scratch / "report.xml"
        self._summary = scratch / SUMMARY
        self._output_path = scratch / "said"
        self._is_late = False
        self._started_s = time.monotonic()
        print(f"=== {stage.name}", flush=True)
        command = [*stage.command, f"--junitxml={self._report}"] if stage.pytest else stage.command
        # Each run has its own directory for tests: pytest removes old ones at its end, also those of other runs.
        environment = {**os.environ, **stage.environment, TEMPORARY: str(scratch), SUMMARY: str(self._summary)}
        with self._output_path.open("wb") as output_file:
            output = (
                output_file if stage.has_company else None
            )  # the output of a stage that runs alone is shown at once
            self._process = subprocess.Popen(
                command, cwd=ROOT, env=environment, stdout=output, stderr=output, start_new_session=True
            )

    def is_over(self) -> bool:
        """Whether it has ended. A stage is ended after its time-out."""
        if self._process.poll() is None and time.monotonic() - self._started_s > self.stage.timeout_s:
            self._is_late = True
            self.end()
        return self._process.poll() is not None

    def end(self) -> None:
        """End the stage, with an interrupt first: pytest says which test it was in, and its fixtures stop their
        processes."""
        if self._process.poll() is not None:
            return
        try:
            self._process.send_signal(signal.SIGINT)
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(LEAVE_TIMEOUT_S)
        finally:
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()

    def tally(self, in_ci: bool) -> Tally:
        """Print the output of a stage that is over, and its seconds. A time-out is a failure. Removes its files."""
        print(self._output_path.read_text(encoding="utf-8", errors="replace"), end="")
        if self._is_late:
            print(f"{self.stage.name}: not done after {self.stage.timeout_s} s")
        has_failed = self._is_late or self._process.returncode != 0
        if self.stage.pytest and self._report.exists():
            tally = count(self._report, in_ci)
            tally.failed = tally.failed or int(has_failed)
        else:
            tally = Tally(passed=int(not has_failed), failed=int(has_failed))
        if self._summary.exists():
            tally.summary = self._summary.read_text(encoding="utf-8")
        shutil.rmtree(self._scratch, ignore_errors=True)
        seconds = time.monotonic() - self._started_s
        print(f"=== {self.stage.name}: {'FAILED' if tally.failed else 'ok'}, {seconds:.1f} s", flush=True)
        return tally


def has_room(stage: Stage, running: list[Run]) -> bool:
    """Whether a stage may start beside the running ones."""
    everyone = [stage, *(run.stage for run in running)]
    return len(everyone) == 1 or (len(everyone) <= SIDE_BY_SIDE_MAX and all(one.has_company for one in everyone))


def no_ledger(_stage: Stage, _tally: Tally) -> None:
    """Do not record the result: only long stages are in the ledger."""


def run_all(stages: list[Stage], in_ci: bool, on_end: Callable[[Stage, Tally], None] = no_ledger) -> Tally:
    """Run stages in their order; after one that is red no other is started, and those beside it come to their end."""
    total = Tally()
    waiting = deque(stages)
    running: list[Run] = []
    with ExitStack() as whatever_happens:
        scratch = whatever_happens.enter_context(tempfile.TemporaryDirectory(ignore_cleanup_errors=True))
        while waiting or running:
            while waiting and has_room(waiting[0], running):
                running.append(Run(waiting.popleft(), Path(tempfile.mkdtemp(dir=scratch))))
                whatever_happens.callback(running[-1].end)
            for run in [each for each in running if each.is_over()]:
                running.remove(run)
                tally = run.tally(in_ci)
                total.add(tally)
                on_end(run.stage, tally)
                if tally.failed:
                    waiting.clear()
            time.sleep(POLL_EVERY_S if running else 0)
    return total


def git(*arguments: str) -> str:
    done = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=True)
    return done.stdout.strip()


def write_ledger(stage: Stage, tally: Tally) -> None:
    """Append the result of a long stage to the ledger, to be committed: the date, the commit, the settings, the
    outcome."""
    changed = git("status", "--short", "--untracked-files=no", "--", ".", ":!docs/ledger.md", f":!{LEDGER}")
    commit = git("rev-parse", "--short", "HEAD") + (" with changes" if changed else "")
    settings = ", ".join(f"{key}={value}" for key, value in stage.environment.items())
    run = {
        "date": time.strftime("%Y-%m-%d"),
        "commit": commit,
        "stage": stage.name,
        "settings": "; ".join(part for part in (settings, tally.summary) if part),
        "passed": tally.passed,
        "failed": tally.failed,
    }
    with (ROOT / LEDGER).open("a", encoding="utf-8") as ledger:
        ledger.write(json.dumps(run, ensure_ascii=False) + "\n")
    subprocess.run([sys.executable, "tools/generate_ledger_doc.py"], cwd=ROOT, check=True)


def leave(number: int, _: object) -> None:
    """Raise SystemExit, so that the running stages are ended."""
    raise SystemExit(128 + number)


def main() -> int:
    """Runs the suite named on the command line."""
    suite = sys.argv[1]
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, leave)
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs ignore it
    in_ci = os.environ.get("CI") == "true"
    total = run_all(SUITES[suite], in_ci, write_ledger if suite == "long" else no_ledger)
    print(f"{total.passed} passed, {total.failed} failed, {total.skipped} skipped")
    return 1 if total.failed else 0


if __name__ == "__main__":
    raise SystemExit(main())
