"""Documents and configuration with the renames of a batch: paths everywhere, symbols in code."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from tools.rename.paths import rename_paths

if TYPE_CHECKING:
    from collections.abc import Collection

    from tools.rename.batches import Batch

CODE = re.compile(r"`[^`\n]+`")


def rename_document(text: str, batch: Batch, ambiguous: Collection[str] = ()) -> str:
    """Markdown: paths and dotted names anywhere; symbols between backticks.

    A name in `ambiguous` is defined in several modules: it is renamed only behind the path of its module.
    """
    for was, new in batch.symbols.items():
        module, _, symbol = was.rpartition(".")
        text = text.replace(f"{module.replace('.', '/')}.py::{symbol}", f"{module.replace('.', '/')}.py::{new}")
    names = {was.rpartition(".")[2]: new for was, new in batch.symbols.items()}
    plain = sorted(names.keys() - set(ambiguous), key=len, reverse=True)
    if plain:
        pattern = re.compile(rf"(?<![\w/-])(?<!::)(?:{'|'.join(map(re.escape, plain))})(?![\w/-])")
        text = CODE.sub(lambda code: pattern.sub(lambda found: names[found.group()], code.group()), text)
    return rename_paths(text, batch.modules)
