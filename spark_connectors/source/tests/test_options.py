"""Options of the source: names of the kafka source, defaults, refusals, and columns."""

from __future__ import annotations

import json
from typing import Any

import pytest

from spark_connectors.options import OptionRefused
from spark_connectors.source.options import (
    COLUMNS,
    AtOffsets,
    AtTimestamp,
    AtTimestamps,
    Edge,
    FetchSizes,
    Selection,
    SourceOptions,
    source_options,
)
from spark_connectors.wire import Address, Settings, TopicPartition

WHERE = {"kafka.bootstrap.servers": "a:1"}
NEEDED = {**WHERE, "subscribe": "t"}
PLACES = json.dumps({"t": {"0": 5, "1": -2}})
BOTH = {TopicPartition("t", 0): 5, TopicPartition("t", 1): -2}


def batch(**options: str) -> SourceOptions:
    return source_options({**NEEDED, **options}, is_stream=False)


def stream(**options: str) -> SourceOptions:
    return source_options({**NEEDED, **options}, is_stream=True)


def test_defaults() -> None:
    assert batch() == SourceOptions(
        bootstrap=(Address("a", 1),),
        settings=Settings(),
        selection=Selection(topics=("t",)),
        starting=Edge.EARLIEST,
        ending=Edge.LATEST,
        columns=COLUMNS,
        fetch=FetchSizes(),
        is_committed_only=False,
        fails_on_data_loss=True,
        has_filters_pushed=False,
        is_late_start_latest=False,
        min_partitions=None,
        max_records_per_partition=None,
        max_offsets_per_trigger=None,
        min_offsets_per_trigger=None,
        max_trigger_delay_s=900,
        poll_timeout_s=120,
        lookup_attempts=3,
        lookup_pause_s=1,
        segments=None,
    )
    assert stream().starting is Edge.LATEST


def test_all_that_can_be_said() -> None:
    found = source_options(
        {
            **NEEDED,
            "startingOffsets": PLACES,
            "failOnDataLoss": "false",
            "minPartitions": "3",
            "maxRecordsPerPartition": "4",
            "maxOffsetsPerTrigger": "100",
            "minOffsetsPerTrigger": "10",
            "maxTriggerDelay": "20s",
            "includeHeaders": "true",
            "groupIdPrefix": "spark",
            "kafka.group.id": "g",
            "kafka.isolation.level": "read_committed",
            "kafka.client.id": "me",
            "kafka.fetch.min.bytes": "2",
            "kafka.fetch.max.bytes": "3",
            "kafka.fetch.max.wait.ms": "4",
            "kafka.max.partition.fetch.bytes": "5",
            "fetchOffset.numRetries": "6",
            "fetchOffset.retryIntervalMs": "70",
            "kafkaConsumer.pollTimeoutMs": "800",
            "startingOffsetsByTimestampStrategy": "LATEST",
        },
        is_stream=True,
    )
    assert found == SourceOptions(
        bootstrap=(Address("a", 1),),
        settings=Settings(client_id="me"),
        selection=Selection(topics=("t",)),
        starting=AtOffsets(BOTH),
        ending=Edge.LATEST,
        columns=(*COLUMNS, "headers"),
        fetch=FetchSizes(2, 3, 4, 5),
        is_committed_only=True,
        fails_on_data_loss=False,
        has_filters_pushed=False,
        is_late_start_latest=True,
        min_partitions=3,
        max_records_per_partition=4,
        max_offsets_per_trigger=100,
        min_offsets_per_trigger=10,
        max_trigger_delay_s=20,
        poll_timeout_s=0.8,
        lookup_attempts=6,
        lookup_pause_s=0.07,
        segments=None,
    )


@pytest.mark.parametrize(
    ("options", "selection"),
    [
        ({"subscribe": " a, b,,a "}, Selection(topics=("a", "b"))),
        ({"subscribePattern": "a.*"}, Selection(pattern="a.*")),
        (
            {"assign": '{"b":[1],"a":[2,0]}'},
            Selection(partitions=(TopicPartition("a", 0), TopicPartition("a", 2), TopicPartition("b", 1))),
        ),
    ],
)
def test_selection_is_parsed_from_its_option(options: dict[str, str], selection: Selection) -> None:
    assert source_options({**WHERE, **options}, is_stream=True).selection == selection


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({}, "exactly one of the options subscribe, subscribePattern, assign is required, given are 0"),
        ({"subscribe": "a", "assign": '{"a":[0]}'}, "given are 2"),
        ({"subscribe": " ,"}, "option subscribe: it names no topic"),
        ({"subscribePattern": " "}, "option subscribePattern: the pattern is empty"),
        ({"subscribePattern": "("}, "option subscribePattern: no pattern of Python's"),
        ({"assign": "t"}, "option assign: expected e.g."),
        ({"assign": "[]"}, "option assign: expected e.g."),
        ({"assign": "{}"}, "option assign: expected e.g."),
        ({"assign": '{"t":0}'}, "option assign: expected e.g."),
        ({"assign": '{"t":["0"]}'}, "option assign: expected e.g."),
        ({"assign": '{"t":[-1]}'}, "option assign: expected e.g."),
    ],
)
def test_invalid_selection_is_refused(options: dict[str, str], text: str) -> None:
    with pytest.raises(OptionRefused, match=text.replace("(", r"\(").replace("[", r"\[")):
        source_options({**WHERE, **options}, is_stream=True)


@pytest.mark.parametrize(
    ("options", "starting"),
    [
        ({"startingOffsets": "Earliest"}, Edge.EARLIEST),
        ({"startingOffsets": "latest"}, Edge.LATEST),
        ({"startingOffsets": PLACES}, AtOffsets(BOTH)),
        ({"startingOffsetsByTimestamp": '{"t":{"0":7}}'}, AtTimestamps({TopicPartition("t", 0): 7})),
        ({"startingTimestamp": "9"}, AtTimestamp(9)),
        ({"startingOffsets": "latest", "startingTimestamp": "9"}, AtTimestamp(9)),
        ({"startingOffsets": "latest", "startingOffsetsByTimestamp": "{}"}, AtTimestamps({})),
    ],
)
def test_where_to_start(options: dict[str, str], starting: Any) -> None:
    assert stream(**options).starting == starting


@pytest.mark.parametrize(
    ("options", "ending"),
    [
        ({"endingOffsets": "latest"}, Edge.LATEST),
        ({"endingOffsets": '{"t":{"0":-1}}'}, AtOffsets({TopicPartition("t", 0): -1})),
        ({"endingOffsetsByTimestamp": '{"t":{"0":7}}'}, AtTimestamps({TopicPartition("t", 0): 7})),
        ({"endingTimestamp": "9"}, AtTimestamp(9)),
    ],
)
def test_where_to_end(options: dict[str, str], ending: Any) -> None:
    assert batch(**options).ending == ending
    (name,) = options
    with pytest.raises(OptionRefused, match=f"option {name} is for batches"):
        stream(**options)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"startingOffsets": "latest"}, "option startingOffsets: a batch cannot start at the latest"),
        ({"startingOffsets": '{"t":{"0":-1}}'}, "option startingOffsets: a batch cannot start at the latest"),
        ({"endingOffsets": "earliest"}, "option endingOffsets: a batch cannot end at the earliest"),
        ({"endingOffsets": '{"t":{"0":-2}}'}, "option endingOffsets: a batch cannot end at the earliest"),
        ({"startingOffsets": PLACES, "endingOffsets": '{"t":{"0":9}}'}, "name different partitions"),
        ({"startingOffsets": '{"t":{"0":5}}', "endingOffsets": '{"t":{"0":4}}'}, "t-0 ends before it starts"),
        (
            {"startingOffsetsByTimestamp": '{"t":{"0":5}}', "endingOffsetsByTimestamp": '{"t":{"0":4}}'},
            "options startingOffsetsByTimestamp and endingOffsetsByTimestamp: t-0 ends before it starts",
        ),
    ],
)
def test_places_that_no_batch_can_have(options: dict[str, str], text: str) -> None:
    with pytest.raises(OptionRefused, match=text):
        batch(**options)


def test_filters_are_for_batches() -> None:
    assert batch(pushDownPredicate="true").has_filters_pushed
    assert not stream(pushDownPredicate="false").has_filters_pushed
    with pytest.raises(OptionRefused, match="option pushDownPredicate is for batches"):
        stream(pushDownPredicate="true")


def test_an_end_may_be_open() -> None:
    options = {"startingOffsets": '{"t":{"0":5}}', "endingOffsets": '{"t":{"0":-1}}'}
    assert batch(**options).ending == AtOffsets({TopicPartition("t", 0): -1})


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("startingOffsets", "5"),
        ("startingOffsets", '{"t":5}'),
        ("startingOffsets", '{"t":{"0":-3}}'),
        ("startingOffsetsByTimestamp", '{"t":[5]}'),
        ("startingTimestamp", "yesterday"),
        ("startingOffsetsByTimestampStrategy", "maybe"),
        ("failOnDataLoss", "no"),
        ("minPartitions", "0"),
        ("maxRecordsPerPartition", "0"),
        ("maxOffsetsPerTrigger", "-5"),
        ("minOffsetsPerTrigger", "x"),
        ("maxTriggerDelay", "soon"),
        ("kafka.isolation.level", "read"),
        ("kafka.fetch.max.bytes", str(2**31)),
        ("fetchOffset.numRetries", "0"),
        ("kafkaConsumer.pollTimeoutMs", "0"),
        ("columns", ""),
        ("columns", "key,keys"),
        ("columns", "key,Key"),
    ],
)
def test_values_that_are_none(name: str, value: str) -> None:
    with pytest.raises(OptionRefused, match=f"option {name}:"):
        stream(**{name: value})


def test_unknown_or_contradictory_option_is_refused() -> None:
    with pytest.raises(OptionRefused, match=r"option startingoffset is not known.*is startingOffsets meant"):
        stream(startingoffset="latest")
    with pytest.raises(OptionRefused, match=r"option minOffsetsPerTrigger is 5, above maxOffsetsPerTrigger, 4"):
        stream(minOffsetsPerTrigger="5", maxOffsetsPerTrigger="4")


@pytest.mark.parametrize(
    ("options", "columns"),
    [
        ({"columns": "offset, KEY"}, ("offset", "key")),
        ({"columns": "timestamptype"}, ("timestampType",)),
        ({"columns": "headers,value"}, ("headers", "value")),
        ({"columns": "value", "includeHeaders": "true"}, ("value",)),
    ],
)
def test_columns(options: dict[str, str], columns: tuple[str, ...]) -> None:
    assert batch(**options).columns == columns
