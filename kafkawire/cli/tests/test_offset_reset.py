"""New offsets of a reset, and the options that name them."""

from __future__ import annotations

import pytest

from kafkawire.cli.groups.offset_reset import (
    Goal,
    Known,
    ResetRefused,
    ResetTarget,
    merge_topics,
    parse_csv,
    parse_datetime_ms,
    parse_duration_ms,
    parse_topic,
    plan,
)
from kafkawire.client.partitions import TopicPartition

FIRST, SECOND = TopicPartition("orders", 0), TopicPartition("orders", 1)
LOG = Known(committed=50, start=10, end=100)
UNREAD = Known(committed=None, start=10, end=100)


@pytest.mark.parametrize(
    ("target", "known", "offset"),
    [
        (ResetTarget(Goal.EARLIEST), LOG, 10),
        (ResetTarget(Goal.LATEST), LOG, 100),
        (ResetTarget(Goal.CURRENT), LOG, 50),
        (ResetTarget(Goal.CURRENT), UNREAD, 100),
        (ResetTarget(Goal.OFFSET, 70), LOG, 70),
        (ResetTarget(Goal.OFFSET, 10), UNREAD, 10),
        (ResetTarget(Goal.OFFSET, 100), UNREAD, 100),
        (ResetTarget(Goal.SHIFT, 5), LOG, 55),
        (ResetTarget(Goal.SHIFT, -40), LOG, 10),
        (ResetTarget(Goal.TIME, 1234), LOG._replace(at_time=33), 33),
        (ResetTarget(Goal.FILE, offsets={FIRST: 20}), LOG, 20),
    ],
)
def test_each_goal(target: ResetTarget, known: Known, offset: int) -> None:
    assert plan(target, {FIRST: known}) == [(FIRST, known.committed, offset, None)]


@pytest.mark.parametrize(
    ("target", "offset", "said"),
    [
        (ResetTarget(Goal.OFFSET, 101), 100, "101 is higher than the latest offset of orders-0: 100 is taken"),
        (ResetTarget(Goal.OFFSET, 9), 10, "9 is lower than the earliest offset of orders-0: 10 is taken"),
        (ResetTarget(Goal.SHIFT, 51), 100, "101 is higher than"),
        (ResetTarget(Goal.SHIFT, -60), 10, "-10 is lower than"),
        (ResetTarget(Goal.FILE, offsets={FIRST: 0}), 10, "0 is lower than"),
        (ResetTarget(Goal.TIME, 1234), 100, "orders-0 has no record as late: the end is taken"),
    ],
)
def test_an_offset_beyond_the_log_is_clamped_with_a_warning(target: ResetTarget, offset: int, said: str) -> None:
    (move,) = plan(target, {FIRST: LOG})
    assert move.offset == offset
    assert move.warning is not None
    assert move.warning.startswith(said)


def test_nothing_can_be_shifted_where_nothing_is_committed() -> None:
    with pytest.raises(ResetRefused, match="orders-1"):
        plan(ResetTarget(Goal.SHIFT, 1), {FIRST: LOG, SECOND: UNREAD})


def test_partitions_are_in_order() -> None:
    assert [move.partition for move in plan(ResetTarget(Goal.LATEST), {SECOND: LOG, FIRST: LOG})] == [FIRST, SECOND]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("orders", ("orders", [])),
        ("orders:1,0,1", ("orders", [FIRST, SECOND])),
        ("a.b_c-d:7", ("a.b_c-d", [("a.b_c-d", 7)])),
    ],
)
def test_topics(text: str, expected: object) -> None:
    assert parse_topic(text) == expected


@pytest.mark.parametrize("text", ["", ":1", "orders:", "orders:x", "orders:1,", "orders:-1", "orders:1:2"])
def test_no_topics(text: str) -> None:
    with pytest.raises(ValueError, match="TOPIC"):
        parse_topic(text)


@pytest.mark.parametrize(
    ("text", "expected_ms"),
    [
        ("1970-01-01T00:00:01.500", 1500),
        ("1970-01-01T00:00:00Z", 0),
        ("1970-01-01T01:00:00.000+01:00", 0),
        ("2026-11-21T18:00:00", 1_795_284_000_000),
    ],
)
def test_datetimes_without_a_zone_are_utc(text: str, expected_ms: int) -> None:
    assert parse_datetime_ms(text) == expected_ms


@pytest.mark.parametrize("text", ["", "yesterday", "2026-13-01T00:00:00", "1795284000000"])
def test_no_datetimes(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        parse_datetime_ms(text)


@pytest.mark.parametrize(
    ("text", "expected_ms"),
    [
        ("P7D", 604_800_000),
        ("PT1H30M", 5_400_000),
        ("PT0.5S", 500),
        ("P1DT1S", 86_401_000),
        ("pt10m", 600_000),
        ("-PT1S", -1000),
    ],
)
def test_durations(text: str, expected_ms: int) -> None:
    assert parse_duration_ms(text) == expected_ms


ENDLESS = ["PT9999999999999999999S", f"P{'9' * 400}D"]


@pytest.mark.parametrize("text", ["", "P", "PT", "7D", "P1H", "P1W", "PT1H ", "P1DT", "PT1.5H", *ENDLESS])
def test_no_durations(text: str) -> None:
    with pytest.raises(ValueError, match="duration"):
        parse_duration_ms(text)


def test_a_file_for_one_group_or_for_several() -> None:
    assert parse_csv(["orders,0,5\n", "\n", "orders,1,6\n"], "billing") == {FIRST: 5, SECOND: 6}
    assert parse_csv(["other,orders,0,1", '"billing",orders,1,6'], "billing") == {SECOND: 6}


@pytest.mark.parametrize("line", ["orders,0", "orders,x,5", "orders,0,-5", "a,b,c,d,e", "billing,orders,0,x"])
def test_a_file_that_is_none(line: str) -> None:
    with pytest.raises(ValueError, match=r"^line 2 is not topic,partition,offset: "):
        parse_csv(["orders,0,5", line], "billing")


def test_a_field_without_end_is_no_csv() -> None:
    with pytest.raises(ValueError, match="no CSV: field larger"):
        parse_csv(["x" * 200_000], "billing")


def test_before_1970_offsets_have_names() -> None:
    assert parse_datetime_ms("1969-12-31T23:59:59.999") == 0


def test_a_topic_may_be_named_again() -> None:
    third = TopicPartition("orders", 2)
    merged = merge_topics([("orders", [third, FIRST]), ("events", []), ("orders", [SECOND, FIRST])])
    assert merged == {"orders": [FIRST, SECOND, third], "events": []}
    assert merge_topics([("orders", [FIRST]), ("orders", [])]) == {"orders": []}
    assert merge_topics([("orders", []), ("orders", [FIRST])]) == {"orders": []}
