"""Commit on the driver, when all tasks of a micro-batch or of a job are done: relays their staged batches.

If a task or the relay has failed, the driver does nothing: a transaction that may have been committed must not be
aborted, and another process may already continue it.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from typing import Final

from spark_connectors.sink.options import SinkOptions
from spark_connectors.sink.relay import Job, RelayOutcome, relay
from spark_connectors.sink.requests import Requests, run
from spark_connectors.sink.staging import Staged, delete_aged, delete_written, frames_of
from spark_connectors.wire import Cluster

NAME_PREFIX: Final = "kafkawire-spark-"
_SWEEP_EVERY: Final = 100  # micro-batches
_log = logging.getLogger(__name__)


def commit(staged: Sequence[Staged], options: SinkOptions, cluster: Cluster) -> RelayOutcome:
    """Write the staged batches of one micro-batch or job. When it returns, all of them are written, once.

    Raises CommitRefused, StagingLost, Fenced, WireError. After that, any process may try the same again.
    """
    query, batch_id = _query_of(staged)
    places = tuple(sorted({place for one in staged for place in one.places}))
    job = Job(f"{NAME_PREFIX}{query}", batch_id, places, options.is_missing_accepted)
    requests = Requests(cluster, job.name, options.record_topic, options.transaction_timeout_ms)
    outcome = run(relay(job, (frame for one in staged for frame in frames_of(one))), requests)
    _log.info("%s, micro-batch %s: %s", job.name, batch_id, outcome.value)
    _clean(options, query, batch_id)
    return outcome


def _query_of(staged: Sequence[Staged]) -> tuple[str, int | None]:
    (found,) = {(one.by.query, one.by.batch_id) for one in staged}
    return found


def _clean(options: SinkOptions, query: str, batch_id: int | None) -> None:
    """Delete staged files. Files that stay do no harm, so no error here may fail a query."""
    try:
        delete_written(options.staging, query, batch_id)
        if batch_id is None or batch_id % _SWEEP_EVERY == 0:
            delete_aged(options.staging, options.staging_age_s, time.time())
    except OSError as error:  # its text names the file; the location may contain a password
        _log.warning("files that were staged are not deleted: %s", error)
