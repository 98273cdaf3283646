"""List of modules: each says its purpose, and a folder can be chosen."""

from __future__ import annotations

from tools.modules import modules, picture, summary, tables


def test_every_module_says_its_purpose() -> None:
    assert [module for module in modules() if not summary(module)] == []


def test_a_folder_is_chosen() -> None:
    everything, some = tables(), tables("engine/logs")
    assert "## engine/logs/" in some
    assert not any(line.startswith("## kafkawire") for line in some)
    assert len(some) < len(everything)


def test_the_picture_has_the_packages_and_their_imports() -> None:
    lines = picture()
    assert "  subgraph engine_[engine]" in lines
    assert any(line.startswith("  kafkawire -->|") and line.endswith("| engine") for line in lines)
