"""Documents and configuration with the renames of a batch: paths everywhere, symbols in code."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from tools.rename.paths import rename_paths

if TYPE_CHECKING:
    from tools.rename.batches import Batch

CODE = re.compile(r"`[^`\n]+`")


def rename_document(text: str, batch: Batch) -> str:
    """Markdown: paths and dotted names anywhere, symbols between backticks."""
    names = {was.rpartition(".")[2]: new for was, new in batch.symbols.items()}
    if names:
        pattern = re.compile(
            rf"(?<![\w/-])(?:{'|'.join(map(re.escape, sorted(names, key=len, reverse=True)))})(?![\w/-])"
        )
        text = CODE.sub(lambda code: pattern.sub(lambda found: names[found.group()], code.group()), text)
    return rename_paths(text, batch.modules)
