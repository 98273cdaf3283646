"""What brokers and topics of these tests are told so that segments are soon in the tier."""

from __future__ import annotations

from compat_tests.harness.s3_server import ACCESS_KEY, SECRET_KEY

QUICK = {
    "remote.log.storage.system.enable": "true",
    "remote.log.manager.task.interval.ms": "200",
    "log.retention.check.interval.ms": "200",
    "log.initial.task.delay.ms": "200",
    "log.segment.delete.delay.ms": "0",
}
ROOT = "lake"


def in_bucket(bucket: str, endpoint: str) -> dict[str, str]:
    """Keys of a broker whose tier is there."""
    return {
        "tier.store": f"s3://{bucket}/{ROOT}",
        "tier.s3.endpoint": endpoint,
        "tier.s3.access.key": ACCESS_KEY,
        "tier.s3.secret.key": SECRET_KEY,
    }
