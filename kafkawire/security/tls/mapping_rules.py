"""Principal names from names of certificates: the rules of `ssl.principal.mapping.rules` (KIP-371). Pure.

A rule is `RULE:pattern/replacement/` with L or U behind it for lower or upper case, or DEFAULT, which keeps the name.
The first rule whose pattern matches the whole name counts. The replacement is Java's: `$1` is a group, and a backslash
takes the meaning from the next character. Patterns are RE2's, which match in linear time; Java's look-around,
back-references and possessive quantifiers are refused.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Final

from kafkawire.patterns import InvalidPattern, compiled

_DEFAULT: Final = "DEFAULT"
_RULE: Final = r"(DEFAULT)|RULE:((?:\\.|[^\\/])*)/((?:\\.|[^\\/])*)/([LU]?).*?|(.*?)"
_SPLITTER: Final = re.compile(rf"\s*({_RULE})\s*(?:,\s*|$)")
_PARSER: Final = re.compile(_RULE)
_REFERENCE: Final = re.compile(r"\$(\d+)", re.ASCII)
_DIGITS: Final = frozenset("0123456789")


class NoMatchingRule(Exception):
    """No rule is for a name, so its certificate cannot log in."""


@dataclass(frozen=True, slots=True)
class _Rule:
    """A rule. The pieces of the replacement are texts, and numbers of groups."""

    pattern: Any  # of RE2, which has no types; None: every name, as it is
    pieces: tuple[str | int, ...] = ()
    case: str = ""  # L, U or empty

    def apply(self, name: str) -> str | None:
        if self.pattern is None:
            return name
        if self.pattern.fullmatch(name) is None:
            return None
        found = self._replaced(name)
        return found.lower() if self.case == "L" else found.upper() if self.case == "U" else found

    def _replaced(self, name: str) -> str:
        """The name with every match of the pattern replaced, as by Java's String.replaceAll."""
        parts, end = [], 0
        for match in self.pattern.finditer(name):
            parts.append(name[end : match.start()])
            parts += [piece if isinstance(piece, str) else match.group(piece) or "" for piece in self.pieces]
            end = match.end()
        return "".join(parts) + name[end:]


class MappingRules:
    """The rules of a listener, in their order."""

    def __init__(self, text: str = _DEFAULT) -> None:
        """Raises ValueError for text that is no list of rules."""
        self._rules = [one for match in _SPLITTER.finditer(text.strip()) if (one := _parsed(match[1])) is not None]

    def name_of(self, distinguished_name: str) -> str:
        """The name of the principal. Raises NoMatchingRule."""
        for rule in self._rules:
            found = rule.apply(distinguished_name)
            if found is not None:
                return found
        raise NoMatchingRule(f"no rule of ssl.principal.mapping.rules is for {distinguished_name}")


def _parsed(text: str) -> _Rule | None:
    """The rule; None: an empty one, which Kafka ignores. Raises ValueError."""
    match = _PARSER.match(text)
    if match is None or match.end() != len(text):
        raise ValueError(f"{text!r} is no rule: it is DEFAULT, or RULE:pattern/replacement/ with L or U behind it")
    if match[1] is not None:
        return _Rule(None)
    if match[2] is None:
        return None
    try:
        pattern = compiled(match[2])
    except InvalidPattern as error:
        raise ValueError(f"the pattern of {text!r} is not supported: {error}") from None
    return _Rule(pattern, tuple(_pieces(match[3], pattern)), match[4])


def _pieces(replacement: str, pattern: Any) -> list[str | int]:
    """Raises ValueError for a replacement that Java would refuse when the rule is used."""
    pieces: list[str | int] = []
    escaped = _with_literal_references(replacement, pattern.groups)
    position = 0
    while position < len(escaped):
        char, position = escaped[position], position + 1
        if char == "\\":
            if position == len(escaped):
                raise ValueError(f"the replacement {replacement!r} ends with a backslash")
            pieces.append(escaped[position])
            position += 1
        elif char == "$":
            group, position = _reference(escaped, position, pattern)
            pieces.append(group)
        else:
            pieces.append(char)
    return pieces


def _reference(text: str, position: int, pattern: Any) -> tuple[int, int]:
    """The group that is named behind a dollar, and the position behind its name."""
    if text.startswith("{", position):
        name, brace, _ = text[position + 1 :].partition("}")
        if not brace or name not in pattern.groupindex:
            raise ValueError(f"the replacement {text!r} names a group {name!r} that the pattern lacks")
        return pattern.groupindex[name], position + len(name) + 2
    if text[position : position + 1] not in _DIGITS:
        raise ValueError(f"the replacement {text!r} has a $ without a group")
    group, position = int(text[position]), position + 1
    if group > pattern.groups:
        raise ValueError(f"the replacement {text!r} names group {group} that the pattern lacks")
    while text[position : position + 1] in _DIGITS and group * 10 + int(text[position]) <= pattern.groups:
        group, position = group * 10 + int(text[position]), position + 1
    return group, position


def _with_literal_references(replacement: str, groups: int) -> str:
    """The replacement with a backslash before each reference to a group that the pattern lacks, as in Kafka. Kafka adds
    none if the pattern has no groups. It counts places in the text before its first backslash."""
    found = replacement
    for match in _REFERENCE.finditer(replacement) if groups else ():
        if match[1].startswith("0"):
            continue
        number = int(match[1])
        while number > groups and number >= 10:
            number //= 10
        if number > groups:
            found = f"{found[: match.start()]}\\{found[match.start() :]}"
    return found
