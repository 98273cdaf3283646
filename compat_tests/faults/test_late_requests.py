"""Requests of transactions that a network delays, loses, sends late or twice: each input is exactly once in the output.

The clients are real, the faults are those of `fault_plan.py`. A request that arrives after the end of its transaction
must not be taken for a part of the next one: the second protocol (KIP-890) is made for that. Requests of the first
protocol cannot be told apart, so that their versions are never late. With `KAFKAWIRE_CHAOS_MERCILESS=1` they are late
too, and the test finds what the first protocol allows, with Apache Kafka too (`KAFKAWIRE_COMPAT_TARGET=kafka`).
"""

from __future__ import annotations

import os
import random
from collections import Counter
from typing import TYPE_CHECKING

from confluent_kafka import KafkaException

from compat_tests.clients.confluent.clients import create_topic, wait_until
from compat_tests.faults.campaign import SEED
from compat_tests.faults.fault_plan import COMES_LATER, FAULTS, Api, Plan, block_length, may_be_late
from compat_tests.faults.faulty_proxy import FaultyProxy
from compat_tests.faults.late_replies import answers, line_of
from compat_tests.faults.transformation import (
    BROKER_CONFIG,
    INPUT,
    OUTPUT,
    PARTITIONS,
    TOPIC_CONFIG,
    Transformation,
    is_transformed,
    values_of,
)
from compat_tests.features.transactions.readers import undecided
from compat_tests.harness.target import target_broker
from testkit.ledger import note_for_ledger

if TYPE_CHECKING:
    from pathlib import Path

    from compat_tests.harness.broker import Broker

TRANSACTIONS = int(os.environ.get("KAFKAWIRE_CHAOS_LATE_TRANSACTIONS", "100"))
IS_MERCILESS = os.environ.get("KAFKAWIRE_CHAOS_MERCILESS") == "1"
KILLS = TRANSACTIONS // 50  # of transformers: each leaves a transaction open
RECORDS_PER_S = 200  # fewer than are transformed, or there is too much to do when the faults are over
OFFSETS_TOPIC, OFFSETS_PARTITIONS = "__consumer_offsets", 50
DECIDED_WITHIN_S = 30.0  # a transaction that only a late request began runs into its time-out of 10 s


class Campaign(Transformation):
    """A transformation through a proxy, with transformers that are killed now and then."""

    def run(self, transactions: int) -> None:
        victims = random.Random(SEED).sample(self.transformers, len(self.transformers))
        self.start()
        try:
            for kill in range(1, KILLS + 2):
                wanted = transactions * kill // (KILLS + 1)
                while self.count("committed") < wanted:
                    self.wait_for_progress()
                if kill <= KILLS:
                    victims[kill % len(victims)].kill()
        finally:
            self.writer.finish()


def test_late_requests_are_not_taken_for_others(tmp_path: Path) -> None:
    print(f"KAFKAWIRE_CHAOS_SEED={SEED}")
    broker = target_broker(tmp_path / "broker", BROKER_CONFIG)
    with FaultyProxy(Plan(SEED, IS_MERCILESS)) as proxy:
        port = broker.listen_behind(proxy.port)
        with broker:
            proxy.serve(port)
            for topic in (INPUT, OUTPUT):
                create_topic(broker, topic, PARTITIONS, TOPIC_CONFIG)
            campaign = Campaign(broker, tmp_path, proxy.bootstrap, RECORDS_PER_S)
            anomalies = play(campaign, broker, proxy)
        summary = summary_of(campaign, proxy, anomalies)
    (tmp_path / "late.txt").write_text("".join(f"{line_of(each)}\n" for each in proxy.late_requests()))
    print(summary)
    note_for_ledger(summary)
    assert not anomalies, f"seed {SEED}: {anomalies}; see {tmp_path}\n{broker.log_tail()}"
    check_that_they_were_hit(proxy)


def play(campaign: Campaign, broker: Broker, proxy: FaultyProxy) -> list[str]:
    """Run with faults until enough is committed; return the anomalies."""
    anomalies: list[str] = []
    inputs: dict[int, list[str]] = {}

    def is_done() -> bool:
        try:
            return is_transformed(broker, inputs)
        except KafkaException:  # the offsets are not stable
            return False

    try:
        campaign.run(TRANSACTIONS)
        proxy.end_faults()
        inputs = values_of(broker, INPUT)
        campaign.wait_until(is_done, "what was written is not transformed")
    except AssertionError as complaint:
        anomalies.append(str(complaint).partition("\n")[0])
    finally:
        campaign.leave()
    wait_until(lambda: proxy.held == 0, "requests are held")
    anomalies += open_partitions(broker)
    return anomalies + campaign.anomalies(inputs)


def open_partitions(broker: Broker) -> list[str]:
    """The partitions with transactions that no time-out ends."""
    topics = {INPUT: PARTITIONS, OUTPUT: PARTITIONS, OFFSETS_TOPIC: OFFSETS_PARTITIONS}

    def found() -> list[str]:
        return [f"{topic}-{number} is open" for topic in topics for number in undecided(broker, topic, topics[topic])]

    try:
        wait_until(lambda: not found(), "they stay open", DECIDED_WITHIN_S)
    except AssertionError:
        return found()
    return []


def summary_of(campaign: Campaign, proxy: FaultyProxy, anomalies: list[str]) -> str:
    """A line for the ledger."""
    faults = Counter[str]()
    for (api, _), count in proxy.faults().items():
        faults[Api(api).name] += count
    by_api = ", ".join(f"{name} {count}" for name, count in sorted(faults.items()))
    return (
        f"seed {SEED}, {campaign.count('committed')} transactions committed, {campaign.count('aborted')} aborted, "
        f"{KILLS} transformers killed, {campaign.restarts} fenced or failed, "
        f"faults: {by_api}; answers to what came late: {answers(proxy.late_requests())}; {len(anomalies)} anomalies"
    )


def check_that_they_were_hit(proxy: FaultyProxy) -> None:
    """Check that all faults were injected: a campaign without faults shows nothing. An API with few requests may have
    had none, if the plan did not use the fault in that block."""
    faults, requests = proxy.faults(), proxy.exposed()
    for fault in FAULTS:
        assert any(faults[api, fault] for api in Api), f"{fault}: nowhere in {requests}"
    for (key, version), count in requests.items():
        if key not in set(Api):
            continue
        length = block_length(key, version)
        if count > length - len(set(FAULTS) - COMES_LATER):
            assert any(faults[key, fault] for fault in FAULTS), f"{key}: no fault in {requests}"
        if count >= length and (IS_MERCILESS or may_be_late(key, version)):
            assert all(faults[key, fault] for fault in COMES_LATER), f"{key}: nothing came late in {requests}"
