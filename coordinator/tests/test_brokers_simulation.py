"""A few seeds of the simulation of three brokers; many run outside of the unit tests."""

from __future__ import annotations

import pytest

from coordinator.tests.brokers_simulation import run_seed


@pytest.mark.parametrize("seed", range(12))
def test_brokers_store_changes_and_clients_agree(seed: int) -> None:
    happened = run_seed(seed)
    assert happened["changes"] > 20
    assert happened["answered"] > 1  # few, if the power is cut at once: clients ask on while no broker is up
