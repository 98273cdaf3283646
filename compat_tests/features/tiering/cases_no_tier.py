"""Topics that ask for the tier, on a broker without one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from compat_tests.differential.cases_configs import SET, TOPIC, wait_for
from compat_tests.differential.catalogue import case
from compat_tests.features.tiering.cases_configs import (
    BYTES,
    COPY_DISABLE,
    DELETE_ON_DISABLE,
    ENABLE,
    LOCAL_BYTES,
    POLICY,
    TIERED,
    TOGETHER,
    alter,
    create,
    said,
)

if TYPE_CHECKING:
    from compat_tests.differential.side import Side


@case("create_topics", (7,))
def configs_without_a_tier(side: Side, _: int) -> None:
    for configs in TOGETHER:
        create(side, f"in the tier, {said(configs)}", "nowhere", {**TIERED, **configs})
        create(side, said(configs), "nowhere", configs)
    create(side, "not copied", "nowhere", {COPY_DISABLE: "true"})
    create(side, "deleted on disable", "nowhere", {DELETE_ON_DISABLE: "true"})


@case("incremental_alter_configs", (1,))
def into_no_tier(side: Side, _: int) -> None:
    side.create_topic("no-tier")
    alter(side, "enabled", "no-tier", (SET, ENABLE, "true"))
    alter(side, "enabled and compacted", "no-tier", (SET, ENABLE, "true"), (SET, POLICY, "compact"))
    alter(side, "disabled", "no-tier", (SET, ENABLE, "false"))
    alter(side, "less in all than here", "no-tier", (SET, BYTES, "1"), (SET, LOCAL_BYTES, "2"))
    wait_for(side, TOPIC, "no-tier", LOCAL_BYTES, "2")
    alter(side, "enabled at last", "no-tier", (SET, ENABLE, "true"))
