"""A small writer of Python source, shared by the two plan compilers: lines, indentation, names, constants."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


class Source:
    """Source text in the making, with the namespace of its names."""

    def __init__(self, **namespace: Any) -> None:
        self.namespace: dict[str, Any] = namespace
        self._lines: list[str] = []
        self._depth = 0
        self._count = 0

    def line(self, text: str) -> None:
        """Add a line at the present depth."""
        self._lines.append("    " * self._depth + text)

    @contextmanager
    def block(self, header: str) -> Iterator[None]:
        """Add a header line; lines added inside the `with` are indented below it."""
        self.line(header)
        self._depth += 1
        yield
        self._depth -= 1

    def name(self, stem: str) -> str:
        """A name not used before."""
        self._count += 1
        return f"{stem}{self._count}"

    def constant(self, stem: str, value: Any) -> str:
        """A name that means `value` in the compiled function."""
        for name, known in self.namespace.items():
            if known is value:
                return name
        name = self.name(stem)
        self.namespace[name] = value
        return name

    def compile(self, function: str, title: str) -> Any:
        """The function of that name, compiled."""
        exec(compile("\n".join(self._lines), f"<{title}>", "exec"), self.namespace)  # noqa: S102 - our own text
        return self.namespace[function]
