"""Problems of a broker with its remote tier: the store is asked, and nothing is left in it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafkawire.process.doctor import Finding, Severity
from kafkawire.process.tier_part import cluster_of, open_store
from tiering.inventory.inventory import clusters
from tiering.object_store import StoreError, StoreUnavailable
from tiering.ownership import newest_owner
from tiering.probe import probe
from tiering.stores.directory import DirectoryStore

if TYPE_CHECKING:
    from kafkawire.config.broker_config import Config
    from kafkawire.deps import Deps
    from tiering.object_store import ObjectStore

SUBJECT = "tier.store"


async def examine_tier(config: Config, deps: Deps) -> list[Finding]:
    """Findings about the remote tier; none without a tier."""
    if config.tier_store is None:
        return []
    store = open_store(config, deps)
    try:
        if isinstance(store, DirectoryStore):
            await store.prepare()
        wrong = await probe(store, config.tier_store.root, deps.random.randbytes(16).hex(), deps.now_ms())
        if wrong is not None:
            return [Finding(Severity.PROBLEM, SUBJECT, wrong, "a broker does not start with it")]
        return await _ownership_findings(store, config, deps)
    except StoreUnavailable as error:
        advice = "a broker starts, and uploads when the store is back; only records in log dirs can be read meanwhile"
        return [Finding(Severity.WARNING, SUBJECT, f"it cannot be reached: {error}", advice)]
    except StoreError as error:
        return [Finding(Severity.PROBLEM, SUBJECT, str(error), "a broker does not start with it")]


async def _ownership_findings(store: ObjectStore, config: Config, deps: Deps) -> list[Finding]:
    findings: list[Finding] = []
    assert config.tier_store is not None
    ours, root = cluster_of(config, deps), config.tier_store.root
    others = [one for one in await clusters(store, root) if one != ours]
    if others:
        text = f"{config.tier_store} has data of other clusters: {', '.join(others[:3])}"
        advice = "none, if that is meant; a broker that has lost its own can be restored from there (kafkawire tier)"
        findings.append(Finding(Severity.NOTE, SUBJECT, text, advice))
    if ours is not None and (generation := await newest_owner(store, root, ours)):
        text = f"the cluster was restored from there, {generation} times so far"
        findings.append(Finding(Severity.NOTE, SUBJECT, text))
    return findings
