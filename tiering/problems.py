"""Reports of repeated problems to the operator: once, until the work has succeeded again."""

from collections.abc import Callable


class Problems:
    """The problems of one task that is tried again and again. `report` takes its text."""

    def __init__(self, report: Callable[[str], None]) -> None:
        self._report = report
        self._reported: set[str] = set()

    def note(self, problem: str) -> None:
        """Report a problem, unless it was reported."""
        if problem not in self._reported:
            self._reported.add(problem)
            self._report(problem)

    def clear(self) -> None:
        """Note success: the next problem is reported again."""
        self._reported.clear()
