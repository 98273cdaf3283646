"""Quix Streams: words are counted exactly once, and the counts outlive the application's state directory."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

from compat_tests.applications.framework_records import TIMEOUT_S, read_values, write
from compat_tests.clients.confluent.clients import Admin, create_topic
from compat_tests.harness.requirements import need_quix
from compat_tests.harness.tools import run

if TYPE_CHECKING:
    from compat_tests.harness.broker import Broker

SENTENCES = [f"word{number % 7} always" for number in range(70)]


def test_counts_outlive_the_application_and_its_state(broker: Broker, topic: str, tmp_path: Path) -> None:
    counts = f"{topic}-counts"
    for name in (topic, counts):
        create_topic(broker, name, 2)
    found: list[str] = []
    for number in (1, 2):  # the second run restores its state from the changelog topic
        write(broker, topic, SENTENCES)
        words = 2 * len(SENTENCES)
        program = Path(__file__).with_name("word_count.py")
        arguments = [broker.bootstrap, topic, counts, str(tmp_path / f"state {number}"), str(words)]
        run([str(need_quix()), str(program), *arguments], timeout_s=2 * TIMEOUT_S)
        found = read_values(broker, counts, number * words)
    results = [json.loads(each) for each in found]
    expected = [{"word": "always", "count": count} for count in range(1, 141)]
    expected += [{"word": f"word{number}", "count": count} for number in range(7) for count in range(1, 21)]
    assert sorted(results, key=str) == sorted(expected, key=str)
    assert any(name.startswith("changelog__") and topic in name for name in Admin(broker).topics())
