"""UpdateFeatures, and ApiVersions after it. Each scenario takes its changes back, for later ones."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from compat_tests.differential.catalogue import case

if TYPE_CHECKING:
    from compat_tests.differential.side import Side

NAME = "transaction.version"
NEWEST = 2
UNKNOWN, UPGRADE, SAFE, UNSAFE = range(4)
APPLIED_TIMEOUT_S = 10.0
CLIENT = {"client_software_name": "compat", "client_software_version": "1.0"}

Update = tuple[str, int, int]


def update(side: Side, version: int, label: str, *updates: Update, **fields: object) -> None:
    rows = [
        {"feature": name, "max_version_level": level, "upgrade_type": kind, "allow_downgrade": kind != UPGRADE}
        for name, level, kind in updates
    ]
    side.ask("update_features", version, {"feature_updates": rows, **fields}, label=label)


def wait_for(side: Side, level: int) -> None:
    """Wait until the broker has the level: Apache Kafka answers earlier. A level of 0 is reported as None."""
    deadline = time.monotonic() + APPLIED_TIMEOUT_S
    while True:
        rows: list[dict[str, Any]] = side.quiet("api_versions", 4, CLIENT)["finalized_features"]
        found = next((row["max_version_level"] for row in rows if row["name"] == NAME), 0)
        if found == level:
            return
        assert time.monotonic() < deadline, f"{side.broker.name}: {NAME} is {found}, not {level}"
        time.sleep(0.01)


def at(side: Side, level: int) -> None:
    """The answers to ApiVersions of older and newer clients at a level."""
    wait_for(side, level)
    for version in (3, 4):
        side.ask("api_versions", version, CLIENT, label=f"ApiVersions {version} at {level}")


@case("update_features", since=1)
def levels(side: Side, version: int) -> None:
    update(side, version, "validate", (NAME, 1, SAFE), validate_only=True)
    wait_for(side, NEWEST)
    update(side, version, "safe downgrade", (NAME, 1, SAFE))
    at(side, 1)
    update(side, version, "the same again", (NAME, 1, SAFE))
    update(side, version, "the same as an upgrade", (NAME, 1, UPGRADE))
    update(side, version, "a downgrade as an upgrade", (NAME, 0, UPGRADE))
    update(side, version, "an upgrade as a safe downgrade", (NAME, 2, SAFE))
    update(side, version, "an upgrade as an unsafe downgrade", (NAME, 2, UNSAFE))
    update(side, version, "validate what is refused", (NAME, 2, SAFE), validate_only=True)
    update(side, version, "unsafe downgrade to none", (NAME, 0, UNSAFE))
    at(side, 0)
    update(side, version, "without any time", (NAME, 2, UPGRADE), timeout=0)
    at(side, NEWEST)


@case("update_features", until=0)
def levels_by_the_first_version(side: Side, version: int) -> None:
    """The first version has a field of its own that allows downgrades."""
    update(side, version, "the same", (NAME, NEWEST, UPGRADE))
    update(side, version, "the same, down", (NAME, NEWEST, SAFE))
    update(side, version, "downgrade", (NAME, 1, UPGRADE))
    update(side, version, "downgrade that is allowed", (NAME, 1, SAFE))
    at(side, NEWEST)
    update(side, 1, "downgrade by a newer version", (NAME, 1, SAFE))
    at(side, 1)
    update(side, version, "upgrade", (NAME, NEWEST, UPGRADE))
    at(side, NEWEST)


@case("update_features")
def refused(side: Side, version: int) -> None:
    for label, name, level in (
        ("level above", NAME, 3),
        ("highest level", NAME, 2**15 - 1),
        ("level below", NAME, -1),
        ("unknown feature", "no.such.feature", 1),
        ("unknown feature to none", "no.such.feature", 0),
        ("unknown feature below", "no.such.feature", -1),
        ("no name", "", 1),
        ("no name to none", "", 0),
        ("in capitals", NAME.upper(), 1),
        ("metadata.version above", "metadata.version", 2**15 - 1),
    ):
        for kind in (UPGRADE, SAFE):
            update(side, version, f"{label}, type {kind}", (name, level, kind))
    for kind in (UNKNOWN, 4, -1):
        update(side, version, f"type {kind}", (NAME, NEWEST, kind))
    wait_for(side, NEWEST)


@case("update_features")
def several(side: Side, version: int) -> None:
    update(side, version, "none")
    update(side, version, "none, validated", validate_only=True)
    update(side, version, "twice the same", (NAME, NEWEST, UPGRADE), (NAME, NEWEST, UPGRADE))
    update(side, version, "twice, first wrong", (NAME, 9, UPGRADE), (NAME, NEWEST, UPGRADE))
    update(side, version, "twice, last wrong", (NAME, NEWEST, UPGRADE), (NAME, 9, UPGRADE))
    update(side, version, "good and bad", (NAME, NEWEST, UPGRADE), ("no.such.feature", 1, UPGRADE))
    wait_for(side, NEWEST)
