"""`kafkawire doctor` on directories as a broker leaves them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import trio
from click.testing import CliRunner

from engine.files.filesystem import PosixFileSystem
from engine.log_config import LogConfig
from kafkawire.cli.doctor.command import command
from testkit.logs import append, open_orders, options, running

SMALL = LogConfig(segment_size_bytes=400)


def doctor(*arguments: str) -> tuple[int, list[dict[str, Any]]]:
    done = CliRunner().invoke(command, [*arguments, "-o", "json"])
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    return done.exit_code, json.loads(done.stdout)


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A log dir with some segments of one partition; its broker was stopped in order."""

    async def fill() -> None:
        async with running(PosixFileSystem(), options(str(tmp_path / "data"))) as store:
            log = await open_orders(store, SMALL)
            for number in range(30):
                await append(log, b"value %d" % number)
            await store.close()

    trio.run(fill)
    return tmp_path / "data"


def about(findings: list[dict[str, Any]], subject: str) -> list[str]:
    return [one["finding"] for one in findings if one["about"].endswith(subject)]


def test_a_sound_directory(data: Path) -> None:
    code, findings = doctor("--set", f"log.dirs={data}", "--scan")
    assert (code, about(findings, ".log")) == (0, [])
    assert not (data / ".doctor").exists()


def test_a_configuration_that_does_not_start() -> None:
    code, findings = doctor("--set", "num.partitions=none")
    assert code == 1
    assert [one["severity"] for one in findings] == ["problem"]
    assert "num.partitions" in findings[0]["finding"]


def test_a_directory_that_is_none(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    code, findings = doctor("--set", f"log.dirs={tmp_path / 'file'}")
    assert (code, about(findings, "/file")) == (1, ["it is no directory"])


@pytest.mark.parametrize(
    ("meta", "reason"),
    [
        (b"x\n", "meta.properties begins with 'x': written by another version or another program"),
        (b"version=1\ncluster.id=c\nbroker.id=one\n", "meta.properties does not say whose it is"),
        (None, "is no log dir: there is no meta.properties"),
    ],
)
def test_a_log_dir_that_a_broker_refuses_to_start_on_is_a_problem(data: Path, meta: bytes | None, reason: str) -> None:
    if meta is None:
        (data / "meta.properties").unlink()
    else:
        (data / "meta.properties").write_bytes(meta)
    for more in ([], ["--scan"]):
        code, findings = doctor("--set", f"log.dirs={data}", *more)
        [problem] = [one for one in findings if one["severity"] == "problem"]
        assert (code, problem["about"]) == (1, f"log dir {data}")
        assert problem["finding"].endswith(reason)


def test_rot_is_found_and_given_up_only_when_told_to(data: Path) -> None:
    segments = sorted((data / "orders-0").glob("*.log"))
    middle = segments[len(segments) // 2]
    content = bytearray(middle.read_bytes())
    middle.unlink()
    code, findings = doctor("--set", f"log.dirs={data}", "--scan")
    assert code == 1
    assert not middle.exists()
    middle.write_bytes(bytes(content[:-1]))
    code, findings = doctor("--set", f"log.dirs={data}", "--scan")
    assert code == 1
    assert about(findings, middle.name)
    code, findings = doctor("--set", f"log.dirs={data}", "--accept-loss")
    assert (code, about(findings, ".log")) == (0, [])
    assert any("the records behind it" in one["finding"] for one in findings)


def test_a_log_dir_of_a_running_broker_is_left_alone(data: Path) -> None:
    lock = PosixFileSystem().lock(str(data / ".lock"))
    code, findings = doctor("--set", f"log.dirs={data}", "--scan", "--accept-loss")
    lock.release()
    assert code == 0
    assert about(findings, str(data))[0].startswith("a broker uses it")
    assert about(findings, ".log") == []
