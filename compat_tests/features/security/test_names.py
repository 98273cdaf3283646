"""Names of certificates and mapping rules, against the classes of Java and Apache Kafka that make principals."""

from __future__ import annotations

import random
from base64 import b64decode, b64encode
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

from compat_tests.harness.java_programs import java_program
from compat_tests.harness.tools import run
from kafkawire.security.tls.distinguished_names import name_of_subject
from kafkawire.security.tls.mapping_rules import MappingRules, NoMatchingRule

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

COUNT = 2000
SEQUENCE, SET, OBJECT_IDENTIFIER, INTEGER = 0x30, 0x31, 0x06, 0x02
# Strings of DER with the charsets in which this test writes them.
STRINGS: Final = {
    0x0C: "utf-8",
    0x13: "ascii",
    0x14: "latin-1",
    0x16: "ascii",
    0x1B: "ascii",
    0x1C: "utf-32-be",
    0x1E: "utf-16-be",
}
TYPES: Final = (
    (2, 5, 4, 3),
    (2, 5, 4, 6),
    (2, 5, 4, 7),
    (2, 5, 4, 8),
    (2, 5, 4, 9),
    (2, 5, 4, 10),
    (2, 5, 4, 11),
    (2, 5, 4, 5),
    (2, 5, 4, 12),
    (1, 2, 840, 113549, 1, 9, 1),
    (0, 9, 2342, 19200300, 100, 1, 1),
    (0, 9, 2342, 19200300, 100, 1, 25),
    (2, 999, 3),
)
CHARACTERS: Final = 'abzAZ09 ,=+<>#;"\\/._-@\r\n\0ßéЖ中€'
PATTERNS: Final = (
    "^CN=(.*?),OU=(.*?)$",
    "CN=(.*?)",
    ".*",
    "^.*[Cc][Nn]=([a-zA-Z0-9.]*).*$",
    "CN=([^,]+)(,.*)?",
    "(a|b)*c?(.*)",
    "^CN=(?<name>[^,]*).*$",
    r"CN=(\w+)\, .*",
    "",
    "([A-Z]+=)+.*",
)
REPLACEMENTS: Final = ("$1", "$2@$1", "", "user-$0", "${name}", r"\$1$1", "$12", "$3-$1", "$1$5$6", "$", "a\\\\b", "x")
CASES: Final = ("", "L", "U")
NAMES: Final = (
    "CN=",
    "CN=a",
    "CN=serviceuser,OU=ServiceUsers,O=Unknown",
    "cn=kafka1.DNS,ou=SME",
    "O=X",
    "CN=a b,O=ÜÄß",
    "",
)


def der(tag: int, content: bytes) -> bytes:
    size = len(content)
    if size < 0x80:
        return bytes([tag, size]) + content
    length = size.to_bytes((size.bit_length() + 7) // 8, "big")
    return bytes([tag, 0x80 | len(length)]) + length + content


def object_identifier(numbers: Sequence[int]) -> bytes:
    content = bytearray()
    for number in (numbers[0] * 40 + numbers[1], *numbers[2:]):
        groups = [number & 0x7F]
        while number := number >> 7:
            groups.append(number & 0x7F | 0x80)
        content += bytes(reversed(groups))
    return der(OBJECT_IDENTIFIER, bytes(content))


def subject(source: random.Random) -> bytes:
    """The content of a random subject."""

    def value() -> bytes:
        if source.random() < 0.05:
            return der(INTEGER, bytes([source.randrange(1, 128)]))
        tag = source.choice([*STRINGS])
        charset = STRINGS[tag]
        length = 200 if source.random() < 0.03 else source.randrange(0, 9)
        chosen = "".join(source.choices(CHARACTERS, k=length))
        return der(tag, chosen.encode(charset, "ignore"))

    def relative() -> bytes:
        # Java sorts nothing, but checks the order of a set in DER no more than OpenSSL does.
        count = 1 if source.random() < 0.8 else source.randrange(2, 4)
        assertions = (der(SEQUENCE, object_identifier(source.choice(TYPES)) + value()) for _ in range(count))
        return der(SET, b"".join(assertions))

    return b"".join(relative() for _ in range(source.randrange(0, 5)))


def rules(source: random.Random) -> str:
    found = []
    for _ in range(source.randrange(1, 4)):
        rule = f"RULE:{source.choice(PATTERNS)}/{source.choice(REPLACEMENTS)}/{source.choice(CASES)}"
        found.append("DEFAULT" if source.random() < 0.2 else rule)
    return source.choice((",", " , ", ",,")).join(found)


def asked(questions: Sequence[str], directory: Path) -> list[str | None]:
    """The answers of Java; None: a refusal."""
    program = java_program(Path(__file__).with_name("Names.java"), "kafka", directory)
    answers = run(program, stdin="\n".join(questions) + "\n", timeout_s=120).splitlines()
    assert len(answers) == len(questions)
    return [None if one == "-" else b64decode(one).decode() for one in answers]


def encoded(text: str) -> str:
    return b64encode(text.encode()).decode()


def answer_of(question: Callable[[], str]) -> str | None:
    try:
        return question()
    except (ValueError, NoMatchingRule):
        return None


@pytest.mark.parametrize("seed", [1])
def test_dn_as_java(seed: int, tmp_path: Path) -> None:
    source = random.Random(seed)
    subjects = [subject(source) for _ in range(COUNT)]
    theirs = asked([f"name {der(SEQUENCE, one).hex()}" for one in subjects], tmp_path)
    ours = [answer_of(partial(name_of_subject, one)) for one in subjects]
    pairs = [(one.hex(), kafka, mine) for one, kafka, mine in zip(subjects, theirs, ours, strict=True) if kafka != mine]
    # Java refuses some subjects that OpenSSL accepts; then its client could not connect at all.
    assert [pair for pair in pairs if pair[1] is not None] == []
    assert sum(one is not None for one in theirs) > COUNT * 0.9


@pytest.mark.parametrize("seed", [1])
def test_mapping_rules_as_kafka(seed: int, tmp_path: Path) -> None:
    source = random.Random(seed)
    questions = [(rules(source), source.choice(NAMES)) for _ in range(COUNT)]
    theirs = asked([f"map {encoded(text)} {encoded(name)}" for text, name in questions], tmp_path)
    wrong = []
    for (text, name), kafka in zip(questions, theirs, strict=True):
        mine = answer_of(partial(mapped, text, name))
        # A replacement that names no group is refused at the start, and by Kafka when the rule is used.
        if mine != kafka and not (mine is None and is_refused(text)):
            wrong.append((text, name, kafka, mine))
    assert wrong == []
    assert sum(one is not None for one in theirs) > COUNT / 2


def mapped(rules: str, name: str) -> str:
    return MappingRules(rules).name_of(name)


def is_refused(text: str) -> bool:
    try:
        MappingRules(text)
    except ValueError:
        return True
    return False
