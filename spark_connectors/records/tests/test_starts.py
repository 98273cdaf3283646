"""Both methods find the same positions."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.batches.batch import Record, build_batch
from spark_connectors.records import starts
from spark_connectors.records.errors import MalformedBatch
from spark_connectors.records.starts import Bounds, bounds_of

lengths = st.integers(0, 100) | st.sampled_from([8178, 8179, 8180, 8181, 20_000])


def bounds_by(lockstep_batches_min: int, sections: list[bytes], counts: list[int]) -> Bounds:
    ends = np.cumsum([len(each) for each in sections])
    begins = np.concatenate([[0], ends[:-1]])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(starts, "LOCKSTEP_BATCHES_MIN", lockstep_batches_min)
        return bounds_of(np.frombuffer(b"".join(sections), np.uint8), begins, ends, np.array(counts))


@given(st.lists(st.lists(lengths, min_size=1, max_size=6), min_size=1, max_size=6))
def test_in_lockstep_or_one_by_one(of_sections: list[list[int]]) -> None:
    sections = [bytes(build_batch([Record(None, bytes(size)) for size in sizes])[61:]) for sizes in of_sections]
    counts = [len(sizes) for sizes in of_sections]
    expected = bounds_by(1000, sections, counts)
    assert np.array_equal(expected.ends[:-1], expected.starts[1:])
    for lockstep_batches_min in (1, 2, 3):
        found = bounds_by(lockstep_batches_min, sections, counts)
        assert np.array_equal(found.starts, expected.starts)
        assert np.array_equal(found.ends, expected.ends)


@given(st.lists(st.binary(min_size=7, max_size=40), min_size=1, max_size=5), st.data())
def test_noise_is_malformed_by_both_or_by_none(sections: list[bytes], data: st.DataObject) -> None:
    counts = [data.draw(st.integers(1, len(each) // 7)) for each in sections]
    found = []
    for lockstep_batches_min in (1, 1000):
        try:
            found.append(bounds_by(lockstep_batches_min, sections, counts).starts.tolist())
        except MalformedBatch:
            found.append(None)
    assert found[0] == found[1]
