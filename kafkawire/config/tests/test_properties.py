"""Sources of the configuration: files, the environment, the command line, and their precedence."""

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkawire.config.broker_config import ConfigError, load
from kafkawire.config.properties import from_environment, gather, parse


def read(content: str) -> dict[str, str]:
    return {key: value for key, value, _ in parse(content, "file")}


# Results of java.util.Properties.load of Java 17.
@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ("a=1\nb = 2 ", {"a": "1", "b": "2 "}),
        ("a: 1", {"a": "1"}),
        ("# no\n! no\n\na=b=c", {"a": "b=c"}),
        (" \t\f# no\n \t\f\n \t\fa=1", {"a": "1"}),
        ("# kept in C:\\\na=1", {"a": "1"}),
        ("listeners=PLAINTEXT://:9092", {"listeners": "PLAINTEXT://:9092"}),
        # White space parts a key from its value, too, and a value may be missing.
        ("listeners PLAINTEXT://0.0.0.0:9092", {"listeners": "PLAINTEXT://0.0.0.0:9092"}),
        ("num.partitions\t3", {"num.partitions": "3"}),
        ("broker.rack\na=", {"broker.rack": "", "a": ""}),
        ("=1", {"": "1"}),
        ("a = = 1", {"a": "= 1"}),
        # A backslash at the end continues a line, unless another one stands before it.
        ("a=1,\\\n2", {"a": "1,2"}),
        ("a=1,\\\n \t\f2", {"a": "1,2"}),
        ("a=1,\\\r\n  2\rb=3", {"a": "1,2", "b": "3"}),
        ("a=1\\", {"a": "1"}),
        ("a=1\\\n\nb=2", {"a": "1", "b": "2"}),
        ("a=1\\\n#2", {"a": "1#2"}),
        ("\\\n#a=1\nb=2", {"b": "2"}),
        ("log.dirs=/d\\\\\nnum.partitions=3", {"log.dirs": "/d\\", "num.partitions": "3"}),
        ("log.dirs=/d\\\\\\\n/e", {"log.dirs": "/d\\/e"}),
        # The character behind any other backslash stands for itself, with a few exceptions.
        ("log.dirs=/data/my\\ dir", {"log.dirs": "/data/my dir"}),
        ("a\\ b\\=c\\:d=e", {"a b=c:d": "e"}),
        ("log.dirs=C\\:\\\\kafka\\logs", {"log.dirs": "C:\\kafkalogs"}),
        ("a=\\t\\n\\r\\f\\b\\U0041", {"a": "\t\n\r\fbU0041"}),
        ("\\u0041=\\u00e9\\\\u0041", {"A": "é\\u0041"}),
        ("a=\\ud83d\\ude00", {"a": "\U0001f600"}),
        ("a=\\u00\\\n41", {"a": "A"}),
        # Only line feeds and carriage returns end a line.
        ("a=1\x0b2\x0c3\x1c4\x855\u20286", {"a": "1\x0b2\x0c3\x1c4\x855\u20286"}),
        ("a\xa0=1", {"a\xa0": "1"}),
    ],
)
def test_properties(content: str, expected: dict[str, str]) -> None:
    assert read(content) == expected


def stored(text: str, *, is_key: bool) -> str:
    """A key or a value in the form of java.util.Properties.store."""
    text = text.replace("\\", "\\\\")
    for char, letter in {"\t": "t", "\n": "n", "\r": "r", "\f": "f"}.items():
        text = text.replace(char, "\\" + letter)
    text = re.sub("[=:#!]", r"\\\g<0>", text)
    text = text.replace(" ", "\\ ") if is_key else re.sub("^ ", r"\\ ", text)
    units = (text[at : at + 1].encode("utf-16-be").hex() for at in range(len(text)))
    return "".join(
        char if " " <= char <= "~" else "".join(rf"\u{unit[at : at + 4]}" for at in range(0, len(unit), 4))
        for char, unit in zip(text, units, strict=True)
    )


@given(st.dictionaries(st.text(), st.text()), st.sampled_from(["\n", "\r\n", "\r"]))
def test_properties_that_java_stores_are_read_back(properties: dict[str, str], line_end: str) -> None:
    lines = [f"{stored(key, is_key=True)}={stored(value, is_key=False)}" for key, value in properties.items()]
    assert read(line_end.join(["#Thu Jan 01 00:00:00 UTC 1970", *lines, ""])) == properties


def test_each_property_knows_the_line_it_begins_on() -> None:
    content = "# a comment\na=1,\\\n  2\n\nb=3"
    assert list(parse(content, "file")) == [("a", "1,2", "file, line 2"), ("b", "3", "file, line 5")]


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        (r"log.dirs=C:\users", r"\u needs four hex digits; a backslash is written twice"),
        (r"a\u12_4=1", r"\u needs four hex digits; a backslash is written twice"),
        ("a=\\u\u0660\u0660\u0664\u0661", r"\u needs four hex digits; a backslash is written twice"),
        (r"a=\ud83dx", r"\u makes half a character"),
    ],
)
def test_an_invalid_unicode_escape_is_refused_with_its_line(line: str, complaint: str) -> None:
    with pytest.raises(ConfigError) as refused:
        read(f"a=1\n{line}\nb=2")
    assert str(refused.value) == f"file, line 2: {complaint}"


@pytest.mark.parametrize("setting", ["", " ", "#a=1", "!a=1", "num.partitions", "a 3", "a:1", "=1", " = 1"])
def test_a_setting_that_sets_nothing_is_refused(setting: str) -> None:
    with pytest.raises(ConfigError) as refused:
        gather(None, {}, ["b=1", setting])
    assert str(refused.value) == "--set: not KEY=VALUE, the 2. of them"


@pytest.mark.parametrize(
    ("setting", "key", "value"),
    [
        ("log.dirs=C:\\kafka\\users\\", "log.dirs", "C:\\kafka\\users\\"),
        ("a:b=c=d#e", "a:b", "c=d#e"),
        (" a = 1\n", "a", "1"),
        ("http.listeners=", "http.listeners", ""),
    ],
)
def test_a_setting_is_taken_without_escape_processing(setting: str, key: str, value: str) -> None:
    assert gather(None, {}, [setting]).values == {key: value}


def test_a_file_that_cannot_be_read_as_text_is_one_clear_line(tmp_path: Path) -> None:
    (tmp_path / "latin.properties").write_bytes(b"broker.rack=M\xfcnchen")
    with pytest.raises(ConfigError, match=r"latin.properties is not UTF-8: .* at byte 13$"):
        gather(tmp_path / "latin.properties", {}, ())
    with pytest.raises(ConfigError, match="No such file"):
        gather(tmp_path / "none.properties", {}, ())


@pytest.mark.parametrize(
    ("name", "key"),
    [
        ("KAFKA_NUM_PARTITIONS", "num.partitions"),
        ("KAFKA_LISTENER_NAME_IN__SIDE_X", "listener.name.in_side.x"),
        ("KAFKA_A___B", "a-b"),
    ],
)
def test_names_of_the_environment_are_those_of_kafkas_image(name: str, key: str) -> None:
    assert list(from_environment({name: "v"})) == [(key, "v", name)]


@pytest.mark.parametrize("name", ["KAFKA_OPTS", "KAFKA_HEAP_OPTS", "KAFKA_HOME", "KAFKAWIRE_X", "PATH", "kafka_x"])
def test_environment_variables_that_are_no_broker_properties_are_ignored(name: str) -> None:
    assert list(from_environment({name: "v"})) == []


def test_the_command_line_goes_before_the_environment_and_that_before_the_file(tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    file.write_text("num.partitions=1\nbroker.rack=file\nnode.id=1")
    found = gather(file, {"KAFKA_BROKER_RACK": "environment", "KAFKA_NODE_ID": "2"}, ["node.id=3"])
    config, warnings = load(found.values, found.origins)
    assert (config.num_partitions, config.rack, config.node_id, warnings) == (1, "environment", 3, [])


@pytest.mark.parametrize(
    ("content", "environment", "settings", "origin"),
    [
        ("a=1\nnum.partitions=0", {}, [], "FILE, line 2"),
        ("num.partitions=1", {"KAFKA_NUM_PARTITIONS": "0"}, [], "KAFKA_NUM_PARTITIONS"),
        ("", {}, ["num.partitions=0"], "--set"),
    ],
)
def test_a_complaint_names_where_the_value_stands(
    tmp_path: Path, content: str, environment: dict[str, str], settings: list[str], origin: str
) -> None:
    file = tmp_path / "server.properties"
    file.write_text(content)
    found = gather(file, environment, settings)
    with pytest.raises(ConfigError) as refused:
        load(found.values, found.origins)
    assert str(refused.value).startswith(f"{origin.replace('FILE', str(file))}: num.partitions=0: must be between 1")


def test_a_warning_names_where_the_key_stands() -> None:
    found = gather(None, {"KAFKA_NO_SUCH_KEY": "1"}, ["num.io.threads=8"])
    assert load(found.values, found.origins)[1] == [
        "KAFKA_NO_SUCH_KEY: no.such.key is not a key of this broker",
        "--set: num.io.threads has no effect here: one event loop serves all requests",
    ]
