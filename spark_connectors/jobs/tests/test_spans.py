from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from spark_connectors.jobs.spans import Span, joined

SPANS = st.lists(
    st.builds(
        lambda partition, start, size: Span(partition, start, start + size),
        st.integers(0, 2),
        st.integers(0, 20),
        st.integers(0, 6),
    ),
    max_size=8,
)


@given(SPANS)
def test_joined_spans_have_the_same_offsets_once(spans: list[Span]) -> None:
    found = joined(spans)
    places = [(one.partition, offset) for one in found for offset in range(one.start, one.end)]
    assert places == sorted({(one.partition, offset) for one in spans for offset in range(one.start, one.end)})
    assert all(one.size > 0 for one in found)
