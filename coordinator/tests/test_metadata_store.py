"""The back ends that need no port keep the promises of `coordinator.metadata_store.store`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import trio

from coordinator.metadata_store.embedded import open_embedded
from coordinator.testing.fakes import run_inline
from coordinator.testing.simulated_metadata_store import FakeEnsemble
from testkit.metadata_store_suite import MetadataStoreSuite, SharedStoreSuite

if TYPE_CHECKING:
    from pathlib import Path

    from coordinator.metadata_store.store import MetadataStore


class Embedded:
    def __init__(self, directory: Path) -> None:
        self.directory = directory

    async def open(self) -> MetadataStore:
        return await open_embedded(self.directory / "metadata", run_inline)


class Fake:
    def __init__(self) -> None:
        self.ensemble = FakeEnsemble()

    async def open(self) -> MetadataStore:
        await trio.lowlevel.checkpoint()
        return self.ensemble.connect()


class TestEmbedded(MetadataStoreSuite):
    @pytest.fixture
    def backend(self, tmp_path: Path) -> Embedded:
        return Embedded(tmp_path)


class TestFake(SharedStoreSuite):
    @pytest.fixture
    def backend(self) -> Fake:
        return Fake()
