"""A campaign of kills and store faults against one broker, with writers and a reader that never stop.

The broker gets `kill -9` at each kind of request to the store; then everything is read back, from the broker and from
the bucket.
"""

from __future__ import annotations

import os
import random
from typing import TYPE_CHECKING

from compat_tests.clients.confluent.clients import create_topic, wait_until
from compat_tests.faults.campaign import finish, kill, strike
from compat_tests.faults.history import History
from compat_tests.faults.writers import ConfluentWriter
from compat_tests.features.tiering.cold_reader import ColdReader
from compat_tests.features.tiering.kill_plan import STEPS, new_kill
from compat_tests.features.tiering.reading_back import examined, read_back, segment_files
from testkit.ledger import note_for_ledger

if TYPE_CHECKING:
    from compat_tests.features.object_stores.faulty_store import FaultyStore
    from compat_tests.features.tiering.bucket import Bucket
    from compat_tests.features.tiering.kill_plan import KillPlan
    from compat_tests.harness.kafkawire_broker import Kafkawire

SEED = int(os.environ.get("KAFKAWIRE_CHAOS_SEED", "0")) or random.SystemRandom().randrange(1, 1 << 31)
KEPT, PASSING = "kept", "passing"  # of the second the oldest goes all the time
PARTITIONS = {KEPT: 1, PASSING: 1}
IN_TIER = {"remote.storage.enable": "true", "segment.ms": "100", "local.retention.bytes": "1"}
CONFIGS = {KEPT: IN_TIER, PASSING: IN_TIER | {"retention.ms": "2000", "local.retention.ms": "1000"}}
PAUSE_S = 0.01  # of a writer, after ten records
REACHED_WITHIN_S = 6.0
HEALED_WITHIN_S = 120.0


def run(broker: Kafkawire, proxy: FaultyStore, server: str, bucket: str, plan: KillPlan, count: int) -> str:
    """Run the campaign and return a line for the ledger. Raises AssertionError with the seed and the anomalies.
    `server`: the endpoint behind the proxy."""
    print(f"KAFKAWIRE_CHAOS_SEED={SEED}")
    histories = {topic: History() for topic in PARTITIONS}
    with broker:
        for topic, partitions in PARTITIONS.items():
            create_topic(broker, topic, partitions, CONFIGS[topic])
        writers = [
            ConfluentWriter(topic, broker, topic, partitions, histories[topic], PAUSE_S)
            for topic, partitions in PARTITIONS.items()
        ]
        reader = ColdReader(broker, KEPT, PARTITIONS[KEPT])
        started = []
        try:
            for each in writers:
                started.append(each)
                each.start()
            reader.start()
            kill_all_over(broker, plan, count)
        finally:
            reader.stop()
            failures = finish(started)
        assert not failures, f"seed {SEED}: {failures}"
        proxy.end_faults()
        wait_until(lambda: proxy.held == 0, "requests are held for ever")
        files = PARTITIONS[KEPT]
        wait_until(lambda: segment_files(broker, KEPT) == files, "files stay that the tier has", HEALED_WITHIN_S)
        wait_until(lambda: not examined(server, bucket).on_their_way, "what is begun is not done", HEALED_WITHIN_S)
        anomalies = [f"{KEPT}, while it was written: {each}" for each in reader.anomalies[:3]]
        for topic, history in histories.items():
            anomalies += [f"{topic}: {each}" for each in read_back(broker, topic, PARTITIONS[topic], history)]
    found = examined(server, bucket)
    anomalies += found.problems()
    acked = sum(len(history.acked) for history in histories.values())
    summary = f"seed {SEED}, {count} x kill -9 at {_told(plan)}; {acked} acknowledged, {reader.records} read meanwhile "
    summary += f"in {reader.rounds} rounds; {sum(proxy.faults().values()) - count} other faults; {_found(found)}; "
    summary += f"{len(anomalies)} anomalies"
    print(summary)
    note_for_ledger(summary)
    assert not anomalies, f"seed {SEED}: {anomalies}\n{broker.log_tail()}"
    assert acked > 10 * count, "too few acknowledgements between the kills to mean anything"
    assert found.segments > count / 4, "too few segments were copied between the kills to mean anything"
    return summary


def kill_all_over(broker: Kafkawire, plan: KillPlan, count: int) -> None:
    """`count` times, at each kind of request in turn; leaves the broker serving."""
    choice = random.Random(SEED)
    steps: list[str] = []
    done, is_down = 0, False
    while done < count:
        steps = steps or choice.sample(STEPS, len(STEPS))
        planned = new_kill(steps.pop(), choice)
        plan.prepare(planned)
        if planned.kind.endswith("probe") and not is_down:  # it comes with the start only
            strike(broker, kill)
            is_down = True
        if is_down:
            broker.launch()
        is_down = planned.gate.is_reached_within(REACHED_WITHIN_S)
        if is_down or (not plan.withdraw() and planned.gate.is_reached_within(REACHED_WITHIN_S)):
            strike(broker, kill)
            is_down = True
            done += 1
        planned.gate.open()
    if is_down:
        broker.start()


def _told(plan: KillPlan) -> str:
    """How often at each kind of request, and how far that had come."""
    kinds = sorted({kind for kind, _ in plan.kills})
    return ", ".join(f"{kind} {sum(n for (each, _), n in plan.kills.items() if each == kind)}" for kind in kinds)


def _found(bucket: Bucket) -> str:
    told = (
        f"{bucket.segments} segments of {bucket.bytes} bytes, {bucket.pages} pages and {bucket.doomed} doomed objects "
    )
    return f"{told}in the bucket, {bucket.pages_left} pages and {bucket.probes_left} probes of nobody"
