"""A run of one seed from its start to the verdict, and the search for the faults that matter when it fails."""

from __future__ import annotations

import signal
import traceback
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from types import FrameType
from typing import Any

import structlog
import trio
import trio.testing

import engine.commit.group_committer
import engine.logs.segments.segment
import engine.logs.segments.sparse_index
import engine.reading.reader
import kafkawire.adapters.tier
import kafkawire.fetching.cold_loads
import tiering.manifest.manifest_log
import tiering.names
import tiering.read.chunks
import tiering.read.cold_file
import tiering.read.cold_tier
import tiering.upload.uploader
from coordinator.transactions import transitions
from kafkawire.config.topic_config import TOPIC_KEYS
from kafkawire.config.values import integer
from kafkawire.tests.simulation.admin import Admin
from kafkawire.tests.simulation.audit import Auditor
from kafkawire.tests.simulation.checker import Anomaly, check
from kafkawire.tests.simulation.crowd import Crowd
from kafkawire.tests.simulation.faults import Faults
from kafkawire.tests.simulation.group_checker import check_groups
from kafkawire.tests.simulation.group_history import GroupHistory
from kafkawire.tests.simulation.group_plan import plan_groups
from kafkawire.tests.simulation.history import History, Place, StoredRecord
from kafkawire.tests.simulation.lives import Lives
from kafkawire.tests.simulation.network import Network
from kafkawire.tests.simulation.pages import MemoryPressure, has_memory_pressure
from kafkawire.tests.simulation.plan import Plan, plan
from kafkawire.tests.simulation.reader import Follower, Wanderer
from kafkawire.tests.simulation.shared import Shared
from kafkawire.tests.simulation.tier import Tier
from kafkawire.tests.simulation.tier_plan import plan_tier
from kafkawire.tests.simulation.tier_store import LATE_PUT_MS
from kafkawire.tests.simulation.transaction_checker import check_transactions
from kafkawire.tests.simulation.transaction_plan import plan_transactions
from kafkawire.tests.simulation.transactions import Transactions
from kafkawire.tests.simulation.world import DiskSpeed, SimulatedWorld, WatchedFileSystem
from kafkawire.tests.simulation.writer import Writer
from testkit.overrides import override
from tiering.upload.uploader import UploaderOptions

OPERATIONS_MIN = 200
FAULTS_MIN = 2  # of four at least: a fault on a disk without writes has no effect
FINISH_WITHIN_S = 600.0  # simulated seconds after the last fault
WANDERER_PAUSE_S = 0.05
NOTICED_WITHIN_S = 0.2  # until the broker notices an error of an operation that is under way
CPU_TIME_MAX_S = 60
NOT_NOW = "00:00-00:01"
INDEX_INTERVAL_BYTES = 200
INDEX_INTERVAL_RECORDS = 2
CHUNK_BYTES = 1000  # the size of the chunks that are fetched from a tier


class TooLong(BaseException):
    """The run exceeds its time. It is no Exception, so that the broker does not take it for an error of its own."""


@dataclass(frozen=True)
class Result:
    """The result of a seed."""

    seed: int
    operations: int
    faults: int
    lives: int
    trace: str
    anomalies: tuple[Anomaly, ...]
    tiered: int = 0  # segments that came into the tier
    counts: Mapping[str, int] = field(default_factory=dict)  # counts of other events


def prepare() -> None:
    """Prepare the process, once: a deterministic schedule, small segments and index intervals, no log output, and
    reads that bring only a part of a segment into memory."""
    vars(trio._core._run)["_ALLOW_DETERMINISTIC_SCHEDULING"] = True
    TOPIC_KEYS["segment.bytes"] = replace(TOPIC_KEYS["segment.bytes"], reader=integer(1000))
    override(engine.logs.segments.sparse_index, INTERVAL_BYTES=INDEX_INTERVAL_BYTES)
    override(engine.logs.segments.segment, INTERVAL_BYTES=INDEX_INTERVAL_BYTES, INTERVAL_RECORDS=INDEX_INTERVAL_RECORDS)
    windows = {"_GLANCE_WINDOW_BYTES": 64, "_FIRST_WINDOW_BYTES": 200, "_WALK_WINDOW_BYTES": 200}
    override(engine.logs.segments.segment, **windows)  # a larger one would bring a whole segment into memory
    override(engine.reading.reader, READ_AHEAD_BYTES=CHUNK_BYTES // 2)
    structlog.configure(processors=[_drop])
    _make_tiers_small()


def _make_tiers_small() -> None:
    """Reduce the sizes in the tier: a segment has several chunks, a cache few; manifests have pages, and old versions
    go. And a late request takes less than 15 minutes, because brokers do much in that time."""
    override(kafkawire.adapters.tier, UploaderOptions=partial(UploaderOptions, late_put_ms=LATE_PUT_MS))
    override(kafkawire.fetching.cold_loads, LOAD_MAX_BYTES=CHUNK_BYTES // 2)
    override(tiering.read.chunks, CHUNK_BYTES=CHUNK_BYTES, KEPT_MIN=2)
    override(tiering.read.cold_file, CHUNK_BYTES=CHUNK_BYTES, SEQUENTIAL_BYTES=CHUNK_BYTES)
    override(tiering.read.cold_tier, SEEK_BYTES=CHUNK_BYTES, SEQUENTIAL_BYTES=2 * CHUNK_BYTES)
    for module in (tiering.names, tiering.manifest.manifest_log):
        override(module, VERSIONS_PER_BLOCK=8)
    few = {"KEPT_VERSIONS_MIN": 4, "KEPT_MS": 1000, "PAGE_ENTRIES": 4, "MANIFEST_MAX_BYTES": 3000}
    override(tiering.manifest.manifest_log, **few)
    override(tiering.upload.uploader, COLLECT_INTERVAL_S=2.0)


def _drop(_logger: object, _name: str, _event: object) -> Any:
    raise structlog.DropEvent


def run_seed(seed: int, faults: Collection[int] | None = None) -> Result:
    """Run a seed, with all its faults or only the chosen ones."""
    trio._core._run._r.seed(seed)
    signal.signal(signal.SIGPROF, too_long)
    signal.setitimer(signal.ITIMER_PROF, CPU_TIME_MAX_S)
    the_plan, committing = plan(seed), vars(engine.commit.group_committer)
    before = committing["OVERLAP_MIN_BYTES"]
    committing.update(OVERLAP_MIN_BYTES=the_plan.overlap_min_bytes)
    override(transitions, FIRST_EPOCH=plan_transactions(seed).first_epoch)
    try:
        return trio.run(_run, the_plan, faults, clock=trio.testing.MockClock(autojump_threshold=0))
    except (Exception, BaseExceptionGroup, TooLong):
        return Result(seed, 0, 0, 0, "", (Anomaly("simulation crashed", traceback.format_exc()),))
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        committing.update(OVERLAP_MIN_BYTES=before)
        override(transitions, FIRST_EPOCH=0)


def too_long(_signal: int, _frame: FrameType | None) -> None:
    raise TooLong(f"the seed takes more than {CPU_TIME_MAX_S} s")


async def _run(the_plan: Plan, chosen: Collection[int] | None) -> Result:
    run = _Run(the_plan, frozenset(range(len(the_plan.faults)) if chosen is None else chosen))
    final = await run.everything()
    history = run.history
    anomalies = check(history, final) + check_groups(run.groups) + check_transactions(run.transactions.history)
    anomalies += run.anomalies
    if chosen is None and not anomalies:
        if history.operations < OPERATIONS_MIN:
            anomalies.append(Anomaly("idle", f"{history.operations} operations"))
        if len(run.faults.bitten) < FAULTS_MIN:
            anomalies.append(Anomaly("idle", f"faults that bit: {run.faults.bitten}"))
    return Result(
        the_plan.seed,
        history.operations,
        len(run.faults.bitten),
        history.life,
        history.trace.hexdigest(),
        tuple(anomalies),
        len(run.tier.segments),
    )


class _Run:
    """The parts of one run."""

    def __init__(self, the_plan: Plan, chosen: frozenset[int]) -> None:
        transactions = plan_transactions(the_plan.seed)
        tier = plan_tier(the_plan.seed, [*the_plan.topics, *transactions.topics])
        between = the_plan.operations_between_faults * tier.pace
        topics = [tier.of(one) for one in the_plan.topics]
        the_plan = replace(the_plan, topics=topics, operations_between_faults=between)
        transactions = replace(transactions, topics=tuple(tier.of(one) for one in transactions.topics))
        self.plan = the_plan
        self.history = History()
        world = SimulatedWorld(
            seed=the_plan.seed,
            disk=WatchedFileSystem(history=self.history),
        )
        network = Network(world)
        groups = plan_groups(the_plan.seed, the_plan.topics)
        plans = {topic.name: topic for topic in the_plan.topics}
        self.shared = Shared(the_plan.seed, self.history, network, plans)
        self.history.now_ms = world.disk.now_ms = self.shared.now_ms
        world.speed = DiskSpeed(self.shared.rng("disk"))
        properties = {
            "log.dirs": ",".join(the_plan.log_dirs),
            "http.listeners": "",
            "listeners": "PLAINTEXT://memory:9092",
            "auto.create.topics.enable": "false",
            "journal.slot.bytes": str(the_plan.journal_slot_size_bytes),
            "log.retention.check.interval.ms": "300",
            "log.initial.task.delay.ms": "300",
            "log.cleaner.backoff.ms": "500",
            "log.cleaner.io.buffer.size": "4096",
            **groups.properties,
            **transactions.properties,
            **tier.properties,
        }
        losses = groups.loses_views, tier.loses_indexes
        self.lives = Lives(self.shared, world, properties, *losses)
        self.groups = GroupHistory()
        self.crowd = Crowd(groups, self.shared, self.groups)
        self.transactions = Transactions(transactions, self.shared)
        self.tier = Tier(tier, self.shared, self.lives, world.objects)
        self.faults = Faults(the_plan, self.shared, self.lives, chosen)
        self.admin = Admin(self.shared, pause_s=1.0)
        self.anomalies: list[Anomaly] = []  # of the bucket
        self.places = [(topic.name, one) for topic in the_plan.topics for one in range(topic.partition_count)]

    async def everything(self) -> dict[Place, dict[int, StoredRecord]]:
        """Run load and faults, then rest, then a last crash and the audit."""
        auditor = Auditor("auditor", self.shared, self.places)
        final: dict[Place, dict[int, StoredRecord]] = {}
        async with trio.open_nursery() as nursery:
            self.tier.objects.nursery = nursery
            nursery.start_soon(self.lives.run)
            await self.lives.next_life(0)
            for topic in self.plan.topics:
                await self.admin.create(topic)
            nursery.start_soon(self.crowd.run)
            with trio.move_on_after(FINISH_WITHIN_S * 2) as finished:
                async with trio.open_nursery() as followers:
                    for number in range(self.plan.followers):
                        follower = Follower(
                            f"follower-{number}",
                            self.shared,
                            self.places,
                            uses_session=number % 2 == 0,
                            rewinds=has_memory_pressure(self.plan.seed),
                        )
                        followers.start_soon(follower.run)
                    await self._load()
                    self.shared.followers_until = await auditor.ends()
            if finished.cancelled_caught:
                self.history.troubles.append("clients did not come to their end")
            await self._last_restart()
            await self.crowd.wait_until_stable()
            await self.crowd.last_words()
            await self.transactions.last_words()
            self.crowd.stop()
            await self._lose_the_view()
            final = await auditor.read_everything()
            if has_memory_pressure(self.plan.seed):
                self.lives.world.disk.drop_cache()
                await auditor.read_everything()  # what was read before, and is not in memory
            await self.tier.wait_until_done()
            self.anomalies = self.tier.judge(final, self.transactions.history)
            self.lives.is_over = True
            self.lives.stop()
        return final

    async def _load(self) -> None:
        async with trio.open_nursery() as load:
            pace = self.crowd.plan.pace
            for one in self.plan.writers:
                load.start_soon(Writer(replace(one, pause_s=one.pause_s * pace), self.shared).run)
            for number in range(self.plan.wanderers):
                wanderer = Wanderer(f"wanderer-{number}", self.shared, self.places, pause_s=WANDERER_PAUSE_S * pace)
                load.start_soon(wanderer.run)
            load.start_soon(self.admin.run)
            load.start_soon(self.transactions.run)
            if self.tier.plan.is_on:  # another task would change the runs of seeds without a tier
                load.start_soon(self.tier.run)
            if has_memory_pressure(self.plan.seed):
                load.start_soon(MemoryPressure(self.shared, self.lives.world.disk).run)
            await self.faults.run()
            while self.history.operations < OPERATIONS_MIN:
                await trio.sleep(0.01)
            await self._mend()
            self.shared.is_over = True
            self.crowd.thin_out()

    async def _mend(self) -> None:
        """End all faults, and let offline log dirs come back."""
        world = self.lives.world
        world.disk.faults.clear()
        world.speed.slow_s = 0.0
        self.tier.heal()
        await trio.sleep(NOTICED_WITHIN_S)
        if self.lives.has_lost_a_dir:
            await self.lives.restart_cleanly()

    async def _last_restart(self) -> None:
        rng = self.shared.rng("last restart")
        if rng.random() < 0.25:
            await self.lives.restart_cleanly()
        else:
            await self.lives.crash(power_cut=rng.random() < 0.7)

    async def _lose_the_view(self) -> None:
        """Restart without the cache of coordinator state: the log has all that was answered with its help
        (RULES C2)."""
        if self.crowd.plan.groups:
            self.lives.loses_views = 1.0
            await self.lives.crash(power_cut=False)
            await self.crowd.read_again()
