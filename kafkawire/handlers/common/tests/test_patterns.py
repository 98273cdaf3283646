"""Patterns that clients send."""

from __future__ import annotations

import pytest

from kafkawire.handlers.common.patterns import PATTERN_MAX_LENGTH, compile_pattern
from kafkawire.patterns import InvalidPattern


@pytest.mark.parametrize(
    ("pattern", "text", "expected"),
    [
        ("a.*", "abc", True),
        ("a", "abc", False),
        ("b.*", "abc", False),
        ("", "", True),
        ("(?i)ORDERS", "orders", True),
        (r"\p{Greek}+", "αβγ", True),
        (".", "\U0001f600", True),
        ("a|b", "b", True),
    ],
)
def test_a_whole_text_fits(pattern: str, text: str, *, expected: bool) -> None:
    assert compile_pattern(pattern)(text) is expected


@pytest.mark.parametrize("pattern", ["(", "[", "*", r"(a)\1", "(?=a)", "a{1001}", "((a{100}){100}){100}", "\ud800"])
def test_invalid_or_too_complex_pattern_is_refused_with_a_message(pattern: str) -> None:
    with pytest.raises(InvalidPattern) as caught:
        compile_pattern(pattern)
    assert str(caught.value)


def test_a_pattern_has_a_greatest_length() -> None:
    assert compile_pattern("a" * PATTERN_MAX_LENGTH)("a" * PATTERN_MAX_LENGTH)
    with pytest.raises(InvalidPattern, match="longer than 10000"):
        compile_pattern("a" * (PATTERN_MAX_LENGTH + 1))


def test_no_pattern_takes_more_than_linear_time() -> None:
    """A backtracking engine would not finish this pattern within the age of the universe."""
    assert not compile_pattern("(a*)*b")("a" * 50_000)
