"""Reports of repeated problems to the operator: once, until the work has succeeded again."""

from collections.abc import Callable


class Problems:
    """The problems of one task that is tried again and again. `tell` reports a problem."""

    def __init__(self, tell: Callable[[str], None]) -> None:
        self._tell = tell
        self._told: set[str] = set()

    def note(self, problem: str) -> None:
        """Report a problem, unless it was reported."""
        if problem not in self._told:
            self._told.add(problem)
            self._tell(problem)

    def clear(self) -> None:
        """Note success: the next problem is reported again."""
        self._told.clear()
