"""Every difference to Apache Kafka in the tier has a reason, every reason a difference, and the document shows them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from compat_tests.features.tiering.__main__ import DOCUMENT, compare_brokers, document
from compat_tests.harness.requirements import need_kafka_tier_jars

if TYPE_CHECKING:
    from compat_tests.differential.document import Sorted


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> Sorted:
    """The differences between the brokers, once for all tests of this file."""
    need_kafka_tier_jars()
    return compare_brokers(tmp_path_factory.mktemp("differential"))


def test_every_difference_has_a_reason(found: Sorted) -> None:
    assert not found.unexplained, "\n".join(map(str, found.unexplained[:50]))


def test_every_reason_is_needed(found: Sorted) -> None:
    assert not found.unused, "\n".join(each.title for each in found.unused)


def test_the_document_is_current(found: Sorted) -> None:
    assert DOCUMENT.read_text() == document(found), "run: python -m compat_tests.features.tiering"
