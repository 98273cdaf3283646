"""The packages of the product, as they stand in the repository."""

from __future__ import annotations

from typing import Final

PACKAGES: Final = ("kafkawire", "engine", "coordinator", "tiering", "spark_connectors")
