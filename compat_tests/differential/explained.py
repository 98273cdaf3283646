"""Why replies differ: the committed table that makes a difference acceptable. Nothing else does.

A reason says what we do and why; "not built yet" is a reason only with the step that builds it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from compat_tests.differential.compare import Difference


@dataclass(frozen=True)
class Explanation:
    """Patterns that must match the whole of `api.scenario vN`, the path and both values."""

    title: str
    reason: str
    case: str = ".*"
    path: str = ".*"
    kafka: str = ".*"
    ours: str = ".*"

    def covers(self, difference: Difference) -> bool:
        pairs = (
            (self.case, f"{difference.case} v{difference.version}"),
            (self.path, difference.path),
            (self.kafka, difference.kafka),
            (self.ours, difference.ours),
        )
        return all(re.fullmatch(pattern, text, re.DOTALL) for pattern, text in pairs)


EXPLANATIONS: tuple[Explanation, ...] = ()
