"""Progress is read as it was written, and only moves forward."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_connectors.jobs.tables.api import Place, Position, Progress
from spark_connectors.jobs.tables.positions import progress_of, progress_to_json

PLACES = st.builds(Place, st.binary(min_size=16, max_size=16), st.integers(0, 2**31 - 1))


@given(st.dictionaries(PLACES, st.integers(0, 2**63 - 1)), st.integers(0, 2**63 - 1))
def test_progress_comes_back(offsets: dict[Place, int], commits: int) -> None:
    progress = Progress(offsets, commits)
    assert progress_of(json.loads(json.dumps(progress_to_json(progress)))) == progress


@pytest.mark.parametrize(
    "data", [None, [], {}, {"commits": 1}, {"commits": 1, "positions": {"zz": {"0": 1}}}, {"positions": {}}]
)
def test_malformed_progress_raises_value_error(data: Any) -> None:
    with pytest.raises(ValueError, match="no progress of a job"):
        progress_of(data)


def test_offsets_go_forward_only() -> None:
    at = Progress().advanced([Position(bytes(16), 0, 5)])
    assert at.advanced([Position(bytes(16), 0, 5)]).offsets == at.offsets
    with pytest.raises(ValueError, match="partition 0 is at 5 and cannot go back to 4"):
        at.advanced([Position(bytes(16), 0, 4)])
