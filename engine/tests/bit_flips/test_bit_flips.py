"""The hunt for flipped bits works. Flipping many is a stage of the suite."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.logs.recovery import loading
from engine.tests.bit_flips.hunt import Flip, kind_of, look, repeat, templates


def test_an_undamaged_log_dir_is_served_without_reports() -> None:
    with templates(1) as both:
        for template in both:
            findings = look(template, None)
            assert (findings.anomalies, findings.missing, findings.reported) == ([], [], [])
            kinds = {kind_of(path) for path in template.files()}
            assert {".log", ".journal", ".snapshot", "index .ldb", "index .log", "checkpoint"} <= kinds


def test_a_wrong_byte_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loading, "has_right_crc", lambda _batch, _header: True)
    with templates(1) as (stopped, _):
        segment = next(path for path in stopped.files() if path.suffix == ".log" and path.parts[0] == "topic1-1")
        findings = look(stopped, Flip(Path(segment), 70, 0))
        assert any("other bytes" in line for line in findings.wrong)


def test_a_flipped_bit_in_a_batch_that_the_journal_replays_is_harmless() -> None:
    """The flip is in a batch above the recovery point of a broker that was killed."""
    done = repeat(1, 357)
    assert done.harmless == {".log": 1}
    assert done.anomalies == []
