"""Tests of the comparison of readers of the tier: it finds each error."""

from __future__ import annotations

import pytest

from compat_tests.features.tiering.traffic import PARTITIONS, History, Placed, ReaderRecords, Record, record

RECORDS = [record(number, "writer") for number in range(4)]
PLACES = [0, 1, 3, 4]  # a marker lies between


def seen(*found: tuple[int, Record]) -> ReaderRecords:
    """A reader that found these records in the first partition, and all records in the others."""
    history = History()
    for partition in range(PARTITIONS):
        for offset, one in zip(PLACES, RECORDS, strict=True):
            history.keep(Placed(partition, offset, one))
    reader = ReaderRecords(history)
    for partition in range(PARTITIONS):
        for offset, one in zip(PLACES, RECORDS, strict=True) if partition else found:
            reader.add(partition, offset, one)
    return reader


ALL = list(zip(PLACES, RECORDS, strict=True))


def test_all_is_well() -> None:
    seen(*ALL).check()
    seen(*ALL[:2]).check([2, 5, 5])
    seen(*ALL[:3]).check([2, 5, 5])


@pytest.mark.parametrize(
    ("found", "told"),
    [
        (ALL[:3], "partition 0: lost 1, 4 to 4 of 4"),
        (ALL[1:], "partition 0: lost 1, 0 to 0 of 4"),
        ([*ALL[:2], (2, RECORDS[0]), *ALL[2:]], "partition 0: invented 1, 2 to 2"),
        ([*ALL[:2], *ALL[1:]], "doubled"),
        ([ALL[1], ALL[0], *ALL[2:]], "out of order"),
        ([*ALL[:3], (4, RECORDS[3]._replace(value=b""))], "1 are not what was written"),
        ([*ALL[:3], (4, RECORDS[3]._replace(headers=()))], "1 are not what was written"),
    ],
)
def test_each_error_of_a_reader_is_named(found: list[tuple[int, Record]], told: str) -> None:
    with pytest.raises(AssertionError, match=told):
        seen(*found).check()


@pytest.mark.parametrize(
    ("found", "least", "told"),
    [
        ([ALL[0], ALL[2]], 1, "lost 1, 1 to 1 of 3"),
        (ALL[:2], 4, "lost 1, 3 to 3 of 3"),
        ([], 1, "lost 1, 0 to 0 of 0"),
    ],
)
def test_a_part_has_to_be_whole(found: list[tuple[int, Record]], least: int, told: str) -> None:
    """A part has to be whole up to the least end that it may have, and up to its own end."""
    with pytest.raises(AssertionError, match=told):
        seen(*found).check([least, 5, 5])


def test_an_offset_is_given_once() -> None:
    history = History()
    history.keep(Placed(0, 1, RECORDS[0]))
    with pytest.raises(AssertionError, match="given twice"):
        history.keep(Placed(0, 1, RECORDS[1]))
