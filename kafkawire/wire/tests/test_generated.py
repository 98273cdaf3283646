"""The committed message classes equal the output of the generator."""

from pathlib import Path

import kafkawire.messages
from tools.generate_messages import generate


def test_regenerating_changes_nothing(tmp_path: Path) -> None:
    generate(tmp_path)
    committed = Path(kafkawire.messages.__file__).parent
    written = {path.name: path.read_text(encoding="utf-8") for path in tmp_path.glob("*.py")}
    assert {path.name: path.read_text(encoding="utf-8") for path in committed.glob("*.py")} == written
