"""What is wrong is told to the operator once, until it has gone well again."""

from collections.abc import Callable


class Problems:
    """Of one thing that is tried again and again. `tell`: to whom."""

    def __init__(self, tell: Callable[[str], None]) -> None:
        self._tell = tell
        self._told: set[str] = set()

    def note(self, problem: str) -> None:
        """Tell it, unless it was told."""
        if problem not in self._told:
            self._told.add(problem)
            self._tell(problem)

    def clear(self) -> None:
        """It has gone well."""
        self._told.clear()
