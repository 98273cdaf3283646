"""Names of subjects as Java writes them: the form of `X500Principal.getName()`, which is that of RFC 2253. Pure.

Principals and mapping rules of Kafka are written for this form. A common name is first, a country last, as in
`CN=client,OU=data,O=Example,C=DE`.
"""

from __future__ import annotations

from typing import Final

from kafkawire.security.tls.der import Element, elements, object_identifier, subject_of

# The types that RFC 2253 names. Others are written as numbers.
_KEYWORDS: Final = {
    "2.5.4.3": "CN",
    "2.5.4.6": "C",
    "2.5.4.7": "L",
    "2.5.4.8": "ST",
    "2.5.4.9": "STREET",
    "2.5.4.10": "O",
    "2.5.4.11": "OU",
    "0.9.2342.19200300.100.1.1": "UID",
    "0.9.2342.19200300.100.1.25": "DC",
}
# Tags of strings. Java 17 reads each as UTF-8, a BMPString too. It writes all else in hex, a UniversalString too.
_STRINGS: Final = frozenset(
    {
        0x0C,  # UTF8String
        0x13,  # PrintableString
        0x14,  # T61String
        0x16,  # IA5String
        0x1B,  # GeneralString
        0x1E,  # BMPString
    }
)
_ESCAPED: Final = frozenset(',=+<>#;"\\')
_BLANK: Final = " \r"


def java_name(certificate: bytes) -> str:
    """The name of the subject of a DER certificate; empty if the subject is. Raises ValueError."""
    return name_of_subject(subject_of(certificate))


def name_of_subject(content: bytes) -> str:
    """The name of a subject by the content of its sequence. Raises ValueError."""
    names = ["+".join(map(_assertion, elements(one.content))) for one in elements(content)]
    return ",".join(reversed(names))


def _assertion(assertion: Element) -> str:
    identifier, value = elements(assertion.content)
    number = object_identifier(identifier.content)
    keyword = _KEYWORDS.get(number)
    if keyword is None or value.tag not in _STRINGS:
        return f"{keyword or number}=#{value.encoded.hex()}"
    return f"{keyword}={_escaped(value.content.decode('utf-8', 'replace'))}"


def _escaped(text: str) -> str:
    escaped = "".join(f"\\{char}" if char in _ESCAPED else char for char in text).replace("\0", "\\00")
    begin = len(escaped) - len(escaped.lstrip(_BLANK))
    end = max(len(escaped.rstrip(_BLANK)), begin)
    return (
        "".join(f"\\{char}" for char in escaped[:begin])
        + escaped[begin:end]
        + "".join(f"\\{char}" for char in escaped[end:])
    )
