"""docs/modules.md shows the code as it is."""

from __future__ import annotations

from tools.generate_modules_doc import TARGET, modules, render, summary


def test_the_file_is_current() -> None:
    assert TARGET.read_text() == render(), "run `make generate`"


def test_every_module_says_what_it_is_for() -> None:
    assert [module for module in modules() if not summary(module)] == []
