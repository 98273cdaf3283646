"""Tests of the comparison itself: a difference is found, named, and not explained away."""

from __future__ import annotations

from typing import Any

import pytest

from compat_tests.differential.catalogue import VERSIONS
from compat_tests.differential.compare import STOPPED, Difference, compare_transcripts
from compat_tests.differential.document import ranges, sort, table
from compat_tests.differential.explained import Explanation
from compat_tests.differential.normalise import Normaliser, describe_batch, split_batches
from compat_tests.harness.batches import Batch, Record
from compat_tests.harness.kio_codec import API_KEYS
from kafkawire.handlers import API_TABLE

REPLY: dict[str, Any] = {"error_code": 0, "topics": [{"name": "a", "partitions": [{"offset": 5}]}]}


def paths(kafka: object, ours: object) -> list[str]:
    return [each.path for each in compare_transcripts("case", 1, [("step", kafka)], [("step", ours)])]


@pytest.mark.parametrize(
    ("ours", "expected"),
    [
        (REPLY, []),
        ({**REPLY, "error_code": 3}, ["step.error_code"]),
        ({"topics": REPLY["topics"]}, ["step.error_code"]),
        ({**REPLY, "more": None}, ["step.more"]),
        ({**REPLY, "topics": []}, ["step.topics"]),
        ({**REPLY, "topics": [{"name": "a", "partitions": [{"offset": 6}]}]}, ["step.topics[0].partitions[0].offset"]),
        ({**REPLY, "error_code": False}, ["step.error_code"]),
        ({"connection": "closed"}, ["step"]),
    ],
)
def test_differences_are_found(ours: dict[str, Any], expected: list[str]) -> None:
    assert paths(REPLY, ours) == expected


def test_a_missing_reply_is_a_difference() -> None:
    (found,) = compare_transcripts("case", 1, [("one", REPLY), ("two", REPLY)], [("one", REPLY)])
    assert (found.path, found.ours) == ("two", "(absent)")


def test_a_scenario_that_could_not_go_on_is_a_difference_even_if_both_could_not() -> None:
    stopped = [("one", REPLY), (STOPPED, "cannot go on: KeyError: 'no_such_api'")]
    (found,) = compare_transcripts("case", 1, stopped, stopped)
    assert (found.path, found.kafka) == (STOPPED, found.ours)


def test_every_api_can_be_asked() -> None:
    assert set(VERSIONS) <= set(API_KEYS)


def test_every_version_that_is_served_is_compared() -> None:
    served = {api.name: range(api.served_min, api.max_version + 1) for api in API_TABLE}
    assert served == VERSIONS


def test_no_explanation_covers_a_scenario_that_could_not_go_on() -> None:
    stopped = Difference("fetch.x", 4, STOPPED, "cannot go on", "cannot go on")
    assert sort([stopped], [Explanation("everything", "")]).unexplained == [stopped]


def test_an_explanation_covers_only_what_it_names() -> None:
    explanation = Explanation("title", "reason", case="fetch[.].* v[4-6]", path="step[.]a", ours="1|2")
    covered = Difference("fetch.x", 4, "step.a", "0", "1")
    others = [
        Difference("fetch.x", 7, "step.a", "0", "1"),
        Difference("fetch.x", 4, "step.ab", "0", "1"),
        Difference("fetch.x", 4, "step.a", "0", "3"),
    ]
    found = sort([covered, *others], [explanation, Explanation("unused", "", case="nothing")])
    assert found.explained == {explanation: [covered]}
    assert found.unexplained == others
    assert [each.title for each in found.unused] == ["unused"]


def test_versions_are_shown_as_ranges() -> None:
    assert ranges([7, 1, 2, 3, 9, 9]) == "1-3, 7, 9"
    lines = table([Difference("fetch.x", version, "a|b", "0", "1") for version in (4, 5)])
    assert lines[-1] == "| fetch.x | 4-5 | a\\|b | 0 | 1 |"


def test_ids_and_times_become_words_that_say_they_were_there() -> None:
    known = bytes(range(16))
    normalise = Normaliser({"mine": known}, 9092)
    topics = [{"topic_id": known}, {"topic_id": bytes(15) + b"\x01"}, {"topic_id": None}]
    shown = normalise.reply("fetch", {"session_id": 77, "topics": topics, "throttle_time": 5, "port": 9092})
    ids = [{"topic_id": text} for text in ("(id of mine)", "(other id)", "(none)")]
    assert shown == {"session_id": "(session_id)", "topics": ids, "port": "(port)"}
    assert normalise.reply("fetch", {"session_id": 0, "port": 9093}) == {"session_id": 0, "port": 9093}


def test_producers_are_told_apart_by_the_ids_that_scenarios_gave_them() -> None:
    rows = [{"producer_id": number, "last_sequence": 5 - number} for number in (2, 1)]
    shown = Normaliser({}, 9092).reply("describe_producers", {"active_producers": rows})
    assert shown == {"active_producers": rows[::-1]}


def test_producers_are_numbered_as_they_appear() -> None:
    normalise = Normaliser({}, 9092)
    for number, word in ((7, "(producer 1)"), (9, "(producer 2)"), (7, "(producer 1)"), (-1, -1)):
        assert normalise.reply("init_producer_id", {"producer_id": number}) == {"producer_id": word}
    assert normalise.reply("list_transactions", {"producer_id": 9}) == {"producer_id": "(producer 2)"}
    assert normalise.reply("list_transactions", {"producer_id": 11}) == {"producer_id": "(producer_id)"}
    normalise.begin()
    assert normalise.reply("init_producer_id", {"producer_id": 9}) == {"producer_id": "(producer 1)"}


def test_what_the_broker_stamps_into_a_batch_is_not_compared() -> None:
    written = Batch(producer_id=7, attributes=0x10).encode()
    assert describe_batch(written, {7: "(producer 1)"})["producer"][0] == "(producer 1)"
    assert describe_batch(written, {7: "(producer 1)"})["crc"] == "(of the broker)"
    marker = describe_batch(Batch(attributes=0x30, base_timestamp_ms=1_790_000_000_000).encode(), {})
    assert (marker["base_timestamp"], marker["max_timestamp"], marker["crc"]) == ("(now)", "(now)", "(of the broker)")


def test_members_are_numbered_as_they_appear() -> None:
    normalise = Normaliser({}, 9092)
    one, two = (f"compat-{number:08x}-1111-4222-8333-444444444444" for number in (1, 2))
    shown = normalise.reply("join_group", {"leader": one, "member_id": two, "members": [{"member_id": one}]})
    assert shown == {"leader": "(compat 1)", "member_id": "(compat 2)", "members": [{"member_id": "(compat 1)"}]}
    normalise.begin()
    assert normalise.reply("join_group", {"member_id": two}) == {"member_id": "(compat 1)"}
    assert normalise.reply("join_group", {"member_id": "nobody", "leader": ""}) == {"member_id": "nobody", "leader": ""}


def test_batches_are_taken_apart() -> None:
    batch = Batch(records=(Record(), Record()), base_offset=7).encode()
    whole, torn = split_batches(batch + batch[:-1])
    assert describe_batch(whole, {})["base_offset"] == 7
    assert describe_batch(whole, {})["complete"] is True
    assert describe_batch(torn, {})["complete"] is False
    assert describe_batch(batch[:20], {}) == {"torn": batch[:20].hex()}
