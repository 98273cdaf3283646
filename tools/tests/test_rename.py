"""Renames over a whole project: imports, names, texts, documents and mutants, all at once."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING

import pytest

from tools.rename.__main__ import Tree
from tools.rename.batches import Batch, moved, read_batches, where, without_plan
from tools.rename.documents import rename_document
from tools.rename.paths import rename_paths
from tools.rename.project import Project
from tools.rename.source import ClashError, rename_source

if TYPE_CHECKING:
    from pathlib import Path

BATCH = Batch(
    "a",
    modules={"p.a": "p.b", "p.b": "p.c", "p.q": "p.r.q"},
    symbols={"p.a.Old": "New", "p.a.make": "build"},
    words={"p/x.py:settle": "close"},
)
SOURCES = {
    "p/__init__.py": "",
    "p/a.py": "class Old: ...\n\n\ndef make(): return Old()\n",
    "p/b.py": "from p.a import Old\n",
    "p/q/__init__.py": "",
    "p/q/inner.py": "X = 1\n",
    "p/x.py": "",
}


def renamed(text: str, path: str = "p/x.py", batch: Batch = BATCH) -> str:
    return rename_source(path, text, Project({**SOURCES, path: text}), batch)


@pytest.mark.parametrize(
    ("before", "behind"),
    [
        ("from p.a import Old\nOld()\n", "from p.b import (New)\nNew()\n"),
        ("from p.a import Old as Older\nOlder()\n", "from p.b import (New as Older)\nOlder()\n"),
        ("from p.a import make as make\n", "from p.b import (build as build)\n"),
        ("from p.a import make\nclass A:\n    make: int\n", "from p.b import (build)\nclass A:\n    make: int\n"),
        (
            "from p.a import make\nclass A:\n    make = 1\n    def f(s): make()\n",
            "from p.b import (build)\nclass A:\n    make = 1\n    def f(s): build()\n",
        ),
        ("from p.b import Old\nOld()\n", "from p.c import (New)\nNew()\n"),  # by way of another module
        ("from p import a\na.Old()\n", "from p import (b)\nb.New()\n"),
        ("from p import a, b\na.make(b.Old)\n", "from p import (b, c)\nb.build(c.New)\n"),
        ("from p import q\nq.inner\n", "from p.r import (q)\nq.inner\n"),
        ("from p.q import inner\ninner.X\n", "from p.r.q import (inner)\ninner.X\n"),
        ("from p import a, x\n", "from p import (b, x)\n"),
        ("import p.a\np.a.Old()\n", "import p.b\np.b.New()\n"),
        ("import p.a as one\none.Old()\n", "import p.b as one\none.New()\n"),
        ("from other import Old\nOld()\n", "from other import Old\nOld()\n"),
        ("from p.a import make\nmake()\none.make()\n", "from p.b import (build)\nbuild()\none.make()\n"),
        ("from p.a import make\ndef f(make): return make\n", "from p.b import (build)\ndef f(make): return make\n"),
        ("from p.a import make\ndef f(x=make): ...\n", "from p.b import (build)\ndef f(x=build): ...\n"),
        ('from p.a import Old\n"""An Old one."""\n# Old\n', 'from p.b import (New)\n"""An New one."""\n# New\n'),
        ('from p.a import make\n"""To make."""\n', 'from p.b import (build)\n"""To make."""\n'),
        ("from p.a import make\nf'{make(1)} make'\n", "from p.b import (build)\nf'{build(1)} build'\n"),
        ("from p import a\nf'{a.make(1)}'\n", "from p import (b)\nf'{b.build(1)}'\n"),
        ("run('p.a', 'p/a.py', 'p.abc')\n", "run('p.b', 'p/b.py', 'p.abc')\n"),
        ('__slots__ = ("settle", "a settle")\n', '__slots__ = ("close", "a settle")\n'),
        ("patch('p.a.make', 'p.b.Old', 'p.a.made')\n", "patch('p.b.build', 'p.c.New', 'p.b.made')\n"),
        ("one.settle(settled)\n", "one.close(settled)\n"),
        ("é = 'é'; from p.a import Old\nOld()\n", "é = 'é'; from p.b import (New)\nNew()\n"),
    ],
)
def test_sources(before: str, behind: str) -> None:
    assert renamed(before) == behind


def test_definitions() -> None:
    text = SOURCES["p/a.py"]
    assert renamed(text, "p/a.py") == "class New: ...\n\n\ndef build(): return New()\n"


@pytest.mark.parametrize(
    "text",
    [
        "from p.a import make\nbuild = 1\n",
        "from p.a import make\ndef f(build): return make()\n",
        "from p import (\n    a,  # why\n)\n",
        "from p.a import make\nfrom other import build\n",
    ],
)
def test_a_new_name_hides_no_other(text: str) -> None:
    with pytest.raises(ClashError, match=r"p/x\.py:\d"):
        renamed(text)


def test_a_name_elsewhere_is_no_clash() -> None:
    assert renamed("from p.a import make\nmake()\ndef f(build): return build\n").endswith("return build\n")


def test_words_are_renamed_below_their_folder_only() -> None:
    assert renamed("one.settle()\n", "p/y.py") == "one.settle()\n"
    assert renamed("one.settle()\n", "p/y.py", Batch("a", words={"p:settle": "close"})) == "one.close()\n"


def test_documents() -> None:
    text = "Old `Old.x` `make-it` `Older` p/a.py [b](../p/b.py) `p.q.inner`, /data/p/a"
    assert (
        rename_document(text, BATCH) == "Old `New.x` `make-it` `Older` p/b.py [b](../p/c.py) `p.r.q.inner`, /data/p/a"
    )


def test_an_ambiguous_name_in_a_document_is_renamed_behind_its_path_only() -> None:
    text = "`Old` `p/a.py::Old.x` `p/z.py::Old`"
    assert rename_document(text, BATCH, {"Old"}) == "`Old` `p/b.py::New.x` `p/z.py::Old`"
    assert rename_document(text, BATCH) == "`New` `p/b.py::New.x` `p/z.py::Old`"


def test_paths_are_renamed_at_once() -> None:
    assert rename_paths("p.a p.b p.b.c p/b/c.py p.bc", {"p.a": "p.b", "p.b": "p.a"}) == "p.b p.a p.a.c p/a/c.py p.bc"


def test_the_present_name_of_an_old_one() -> None:
    later = Batch("b", modules={"p.b": "z"}, symbols={"p.b.New": "Newest"})
    assert where([BATCH, later], "Old") == ["p.a.Old -> z.Newest"]
    assert where([BATCH, later], "p/a.py") == ["p.a -> z"]
    assert where([BATCH, later], "settle") == ["p/x.py:settle -> close"]
    assert where([BATCH, later], "ld") == []
    assert where([Batch("a", mutants={"early-ack": "ack-before-fsync"})], "early-ack") == [
        "early-ack -> ack-before-fsync"
    ]
    assert where([Batch("a", modules={"p.a": "p.b"}, is_planned=True)], "p/a.py") == []
    assert moved("p.q.inner", BATCH.modules) == "p.r.q.inner"


def test_a_batch_that_was_applied_is_no_plan() -> None:
    text = '[[batches]]\nname = "a"\nis_planned = true\n[[batches]]\nname = "b"\nis_planned = true\n'
    assert without_plan(text, "a") == '[[batches]]\nname = "a"\n[[batches]]\nname = "b"\nis_planned = true\n'


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A small project with a document, a contract, a data file and a mutant."""
    files = SOURCES | {
        "p/x.py": "from p.a import make\n\nONE = make()\n",
        "p/q/data.txt": "1",
        ".hidden/run": "2",
        "README.md": "`Old` of p/a.py",
        "pyproject.toml": 'modules = ["p.a"]',
        "mutants/m.patch": "`make` is not called.\n\ndiff --git a/p/x.py b/p/x.py\n--- a/p/x.py\n+++ b/p/x.py\n"
        "@@ -2,2 +2,2 @@\n \n-ONE = make()\n+ONE = make\n",
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    subprocess.run(["git", "init", "--quiet"], cwd=tmp_path, check=True)
    return tmp_path


def test_a_whole_project(checkout: Path) -> None:
    Tree(checkout, BATCH).apply()
    assert not (checkout / "p/a.py").exists()
    assert (checkout / "p/b.py").read_text().startswith("class New")
    assert (checkout / "p/c.py").read_text() == "from p.b import New\n"
    assert (checkout / "p/r/q/data.txt").read_text() == "1"
    assert (checkout / ".hidden/run").read_text() == "2"
    assert (checkout / "p/x.py").read_text() == "from p.b import build\n\nONE = build()\n"
    assert (checkout / "README.md").read_text() == "`New` of p/b.py"
    assert (checkout / "pyproject.toml").read_text() == 'modules = ["p.b"]'
    patch = (checkout / "mutants/m.patch").read_text()
    assert patch.startswith("`build` is not called.\n")
    assert "-ONE = build()\n+ONE = build\n" in patch
    subprocess.run(["git", "apply", "--check", "mutants/m.patch"], cwd=checkout, check=True)


def test_nothing_is_written_if_a_name_is_unknown(checkout: Path) -> None:
    with pytest.raises(SystemExit, match=r"not there: p\.none, p\.a\.None"):
        Tree(checkout, Batch("a", modules={"p.a": "p.z", "p.none": "p.y"}, symbols={"p.a.None": "N"})).apply()
    assert (checkout / "p/a.py").exists()


def test_nothing_is_written_if_names_clash_or_a_mutant_is_stale(checkout: Path) -> None:
    (checkout / "p/y.py").write_text("from p.a import make\nbuild = 1\n")
    with pytest.raises(SystemExit, match="build is there already"):
        Tree(checkout, BATCH).apply()
    (checkout / "p/y.py").unlink()
    (checkout / "p/x.py").write_text("")
    with pytest.raises(SystemExit, match=r"m\.patch does not apply"):
        Tree(checkout, BATCH).apply()
    assert (checkout / "p/a.py").exists()


def test_mutants_follow_lines_that_moved(checkout: Path) -> None:
    (checkout / "p/x.py").write_text("from p.a import make\n\n# A line.\n\nONE = make()\n")
    Tree(checkout, Batch("rebase")).apply()
    assert "@@ -2,4 +2,4 @@" in (checkout / "mutants/m.patch").read_text()


def test_the_batches_of_this_project_are_well_formed(request: pytest.FixtureRequest) -> None:
    batches = read_batches(request.config.rootpath / "tools/renames.toml")
    assert len({one.name for one in batches}) == len(batches)
