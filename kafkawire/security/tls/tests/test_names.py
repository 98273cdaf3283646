"""Names of certificates, and principals by mapping rules. compat_tests/features/security compares them with Java's."""

from __future__ import annotations

import ssl
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as some

from kafkawire.security.tls.der import elements, object_identifier, subject_of
from kafkawire.security.tls.distinguished_names import java_name, name_of_subject
from kafkawire.security.tls.mapping_rules import MappingRules, NoMatchingRule
from testkit.certificates import shared_ca

COMMON_NAME = "0603550403"
KAFKA_EXAMPLE = (
    "RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/,"
    "RULE:^CN=(.*?),OU=(.*?),O=(.*?),L=(.*?),ST=(.*?),C=(.*?)$/$1@$2/L,"
    "RULE:^.*[Cc][Nn]=([a-zA-Z0-9.]*).*$/$1/L,DEFAULT"
)


def subject(*relative_names: str) -> bytes:
    """The content of a subject; a relative name is the hex digits of its assertions."""
    return b"".join(bytes.fromhex(f"31{len(one) // 2:02x}{one}") for one in relative_names)


def assertion(value: str, identifier: str = COMMON_NAME) -> str:
    return f"30{(len(identifier) + len(value)) // 2:02x}{identifier}{value}"


@pytest.mark.parametrize(
    ("relative_names", "name"),
    [
        ((), ""),
        ((assertion("0c0161"),), "CN=a"),
        ((assertion("13024445", "0603550406"), assertion("0c0161")), "CN=a,C=DE"),
        ((assertion("0c0161") + assertion("0c0162", "060355040b"),), "CN=a+OU=b"),
        ((assertion("0c03612c62"),), r"CN=a\,b"),
        ((assertion("0c0520613d2220"),), r"CN=\ a\=\"\ "),
        ((assertion("0c0120"),), r"CN=\ "),
        ((assertion("0c026100"),), r"CN=a\00"),
        ((assertion("0c0161", "0603550405"),), "2.5.4.5=#0c0161"),
        ((assertion("020101"),), "CN=#020101"),
        ((assertion("160161", "060a0992268993f22c640119"),), "DC=a"),
        ((assertion("0c0161", "0603883703"),), "2.999.3=#0c0161"),
        ((assertion("0c02ff61"),), "CN=\ufffda"),
    ],
)
def test_names_of_subjects(relative_names: tuple[str, ...], name: str) -> None:
    assert name_of_subject(subject(*relative_names)) == name


def test_dn_as_java() -> None:
    leaf = shared_ca().issue_cert("client@example.org", common_name="client, one", organization_name="Example")
    assert java_name(der_of(leaf.cert_chain_pems[0].bytes())).startswith(r"CN=client\, one,")


def der_of(pem: bytes) -> bytes:
    return ssl.PEM_cert_to_DER_cert(pem.decode())


@given(some.binary(max_size=40))
def test_other_bytes_are_refused_or_read(data: bytes) -> None:
    for read in (lambda: list(elements(data)), lambda: subject_of(data), lambda: name_of_subject(data)):
        with suppress(ValueError):
            read()


@pytest.mark.parametrize("data", ["30", "3002", "308000", "3085010000000000", "0c0561"])
def test_an_element_that_does_not_end(data: str) -> None:
    with pytest.raises(ValueError, match="element"):
        list(elements(bytes.fromhex(data)))


def test_an_object_identifier_that_does_not_end() -> None:
    with pytest.raises(ValueError, match="ends within"):
        object_identifier(b"\x55\x84")


@pytest.mark.parametrize("content", ["3000", "30023000", "3006300402010102"])
def test_a_certificate_without_a_subject(content: str) -> None:
    with pytest.raises(ValueError, match=r"unpack|the data end"):
        subject_of(bytes.fromhex(content))


@pytest.mark.parametrize(
    ("rules", "name", "principal"),
    [
        ("DEFAULT", "CN=a,O=b", "CN=a,O=b"),
        (KAFKA_EXAMPLE, "CN=serviceuser,OU=ServiceUsers,O=U,L=U,ST=U,C=U", "serviceuser"),
        (KAFKA_EXAMPLE, "CN=adminUser,OU=Admin,O=U,L=U,ST=U,C=U", "adminuser@admin"),
        (KAFKA_EXAMPLE, "cn=kafka1.DNS,ou=SME", "kafka1.dns"),
        (KAFKA_EXAMPLE, "O=elsewhere", "O=elsewhere"),
        ("RULE:^CN=(.*)$/$1/U", "CN=a", "A"),
        ("RULE:CN=([^,]*).*/user-$0/", "CN=a", "user-CN=a"),
        ("RULE:CN=(?<name>.*)/${name}/", "CN=a", "a"),
        (r"RULE:CN=(.*)/\$1/", "CN=a", "$1"),
        ("RULE:CN=(.*)/$1-$2/", "CN=a", "a-$2"),
        ("RULE:CN=(.*)/$12/", "CN=a", "a2"),
        ("RULE:.*/x/", "CN=a", "xx"),  # as by replaceAll: once for all, once for the empty end
        ("RULE:/x/, , DEFAULT", "CN=a", "CN=a"),
    ],
)
def test_principals_by_rules(rules: str, name: str, principal: str) -> None:
    assert MappingRules(rules).name_of(name) == principal


def test_a_pattern_has_to_match_the_whole_name() -> None:
    with pytest.raises(NoMatchingRule, match=r"no rule of ssl\.principal\.mapping\.rules is for CN=a,O=b"):
        MappingRules("RULE:CN=a/x/").name_of("CN=a,O=b")


def test_no_rule_is_for_any_name() -> None:
    with pytest.raises(NoMatchingRule):
        MappingRules("").name_of("CN=a")


@pytest.mark.parametrize(
    ("rules", "reason"),
    [
        ("RULE:a", "is no rule"),
        ("RULE:a/b", "is no rule"),
        ("RULE:a/b/Lx", "is no rule"),
        ("default", "is no rule"),
        ("RULE:(/b/", "pattern .* is not supported"),
        ("RULE:(?=a)a/b/", "pattern .* is not supported"),
        (r"RULE:(a)\1/b/", "pattern .* is not supported"),
        ("RULE:a/$1/", "group 1 that the pattern lacks"),
        ("RULE:a/$/", "without a group"),
        ("RULE:a/$x/", "without a group"),
        ("RULE:a/${x}/", "group 'x' that the pattern lacks"),
        ("RULE:(a)/${x/", "group 'x' that the pattern lacks"),
    ],
)
def test_rules_that_are_refused(rules: str, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        MappingRules(rules)
