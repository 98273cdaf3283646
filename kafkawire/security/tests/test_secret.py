"""The file of the secret that brokers share: accepted files, and refusals in one line."""

from __future__ import annotations

from pathlib import Path

import pytest

from kafkawire.security.secret import SIZE_MAX_BYTES, SecretRefused, read_secret

SECRET = b"0123456789abcdef"


def written(folder: Path, content: bytes, mode: int = 0o600) -> Path:
    path = folder / "secret"
    path.write_bytes(content)
    path.chmod(mode)
    return path


@pytest.mark.parametrize(
    ("content", "secret"),
    [
        (SECRET, SECRET),
        (SECRET + b"\n", SECRET),
        (SECRET + b"\n\n", SECRET + b"\n"),
        (b"\n" + SECRET, b"\n" + SECRET),
        (bytes(range(256)), bytes(range(256))),
    ],
)
def test_one_newline_at_the_end_is_not_part_of_the_secret(tmp_path: Path, content: bytes, secret: bytes) -> None:
    assert read_secret(written(tmp_path, content)) == secret


@pytest.mark.parametrize("mode", [0o400, 0o600, 0o700])
def test_secret_file_with_all_rights_for_its_owner_is_accepted(tmp_path: Path, mode: int) -> None:
    assert read_secret(written(tmp_path, SECRET, mode)) == SECRET


@pytest.mark.parametrize(
    ("content", "mode", "reason"),
    [
        (b"", 0o600, "is empty"),
        (b"\n", 0o600, "is empty"),
        (SECRET[:15] + b"\n", 0o600, "16 bytes or more, not 15"),
        (SECRET, 0o640, "mode 0640"),
        (SECRET, 0o604, "mode 0604"),
        (SECRET, 0o620, "mode 0620"),
        (bytes(SIZE_MAX_BYTES + 1), 0o600, "at most"),
    ],
)
def test_invalid_secret_file_is_refused_in_one_line(tmp_path: Path, content: bytes, mode: int, reason: str) -> None:
    path = written(tmp_path, content, mode)
    with pytest.raises(SecretRefused) as refused:
        read_secret(path)
    assert str(refused.value).startswith(f"{path}: ")
    assert reason in str(refused.value)
    assert "\n" not in str(refused.value)


def test_unreadable_secret_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SecretRefused, match="No such file"):
        read_secret(tmp_path / "missing")
    with pytest.raises(SecretRefused, match="Is a directory"):
        read_secret(tmp_path)
