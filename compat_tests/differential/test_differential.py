"""Every difference to Apache Kafka has a reason, every reason a difference, and the document shows them all."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from compat_tests.differential.__main__ import DOCUMENT, compare_brokers
from compat_tests.differential.document import render
from compat_tests.differential.play import chosen
from compat_tests.harness.requirements import need_kafka_jars

if TYPE_CHECKING:
    from compat_tests.differential.document import Sorted


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> Sorted:
    """The differences between the two brokers, once for all tests of this file."""
    need_kafka_jars()
    return compare_brokers(tmp_path_factory.mktemp("differential"))


def test_every_difference_has_a_reason(found: Sorted) -> None:
    assert not found.unexplained, "\n".join(map(str, found.unexplained[:50]))


def test_every_reason_is_needed(found: Sorted) -> None:
    assert not found.unused, "\n".join(each.title for each in found.unused)


def test_the_document_is_current(found: Sorted) -> None:
    assert Path(DOCUMENT).read_text() == render(found, chosen()), "run: python -m compat_tests.differential"
