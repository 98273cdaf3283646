"""Plays every scenario against one broker and stores its answers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from compat_tests.differential import (
    cases_cluster_orders,
    cases_compression,
    cases_configs,
    cases_features,
    cases_fetch,
    cases_frames,
    cases_group_admin,
    cases_groups,
    cases_list_offsets,
    cases_log_start,
    cases_metadata,
    cases_offsets,
    cases_partitions,
    cases_produce,
    cases_producer_ids,
    cases_sasl,
    cases_second_protocol,
    cases_topics,
    cases_transactional_logs,
    cases_transactions,
)
from compat_tests.differential.catalogue import CASES
from compat_tests.differential.compare import STOPPED, Difference, compare_transcripts
from compat_tests.differential.side import Side

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import ModuleType

    from compat_tests.differential.catalogue import Case
    from compat_tests.harness.broker import Broker

# In this order: Metadata looks at all topics, before others make hundreds of them.
MODULES = (
    cases_metadata,
    cases_topics,
    cases_configs,
    cases_cluster_orders,
    cases_features,
    cases_partitions,
    cases_produce,
    cases_compression,
    cases_producer_ids,
    cases_fetch,
    cases_list_offsets,
    cases_log_start,
    cases_group_admin,
    cases_groups,
    cases_offsets,
    cases_transactions,
    cases_transactional_logs,
    cases_second_protocol,
    cases_sasl,
    cases_frames,
)

Transcripts = dict[tuple[str, int], list[tuple[str, Any]]]


def play_all(broker: Broker, cases: list[Case]) -> Transcripts:
    """The transcripts by case and version."""
    side = Side(broker)
    return {(case.name, version): play(side, case, version) for case in cases for version in case.versions}


def play(side: Side, case: Case, version: int) -> list[tuple[str, Any]]:
    """Play one scenario; if it cannot go on, the transcript ends with the reason."""
    side.begin()
    try:
        case.play(side, version)
    except (AssertionError, OSError, LookupError, ValueError) as failure:
        side.transcript.append((STOPPED, f"cannot go on: {type(failure).__name__}: {failure}"))
    finally:
        side.end()
    return side.transcript


def differences(kafka: Transcripts, ours: Transcripts) -> list[Difference]:
    return [
        difference
        for (name, version), transcript in kafka.items()
        for difference in compare_transcripts(name, version, transcript, ours[name, version])
    ]


def chosen(pattern: str = "", modules: Sequence[ModuleType] = MODULES) -> list[Case]:
    """The cases of these modules whose name contains the pattern."""
    names = [module.__name__ for module in modules]
    known = [case for case in CASES if case.play.__module__ in names]
    ordered = sorted(known, key=lambda case: names.index(case.play.__module__))
    return [case for case in ordered if pattern in case.name]
