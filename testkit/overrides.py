"""Other values of a module's constants, for a process that tests."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from types import ModuleType


def override(module: ModuleType, **values: object) -> None:
    """Replace constants of a module. A constant with another name by now would silently keep its value."""
    assert values.keys() <= vars(module).keys(), (module, values)
    vars(module).update(values)
