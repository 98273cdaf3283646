"""Text files with a CRC line."""

import pytest

from engine.files.checked_text import body_of, with_crc

CONTENT = with_crc(b"version=1\nname=crc32=\n")


def test_the_lines_come_back() -> None:
    assert body_of(CONTENT) == b"version=1\nname=crc32=\n"


@pytest.mark.parametrize("at", range(len(CONTENT)))
def test_each_changed_byte_is_found(at: int) -> None:
    changed = bytearray(CONTENT)
    changed[at] ^= 1
    assert body_of(bytes(changed)) is None


@pytest.mark.parametrize("length", range(len(CONTENT)))
def test_each_shorter_file_is_found(length: int) -> None:
    assert body_of(CONTENT[:length]) is None


def test_lines_without_a_crc_and_a_crc_without_lines_are_damaged() -> None:
    assert body_of(b"version=1\n") is None
    assert body_of(with_crc(b"")) is None
