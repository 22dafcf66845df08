"""What the pipeline knows of the buckets of a resolution, beside their limits."""

from collections.abc import Mapping
from typing import Any, Final

from app.domain.quota_keys import QuotaKey
from app.domain.resolution_levels import Resolution
from app.http.analytics.documents import usage_json
from app.service.queries.analytics import BucketName, BucketUsage

_NOT_NOW: Final = "The usage is left out: the database that holds it does not answer now."


def buckets_of(resolution: Resolution) -> Mapping[QuotaKey, BucketName]:
    """Return the bucket of each key; an address has none that the pipeline knows."""
    return {
        key: BucketName(key.value, quota.shared_by["user"], quota.shared_by["client-id"])
        for key, quota in resolution.quotas.items()
        if "ip" not in quota.shared_by
    }


def add_usage(
    document: dict[str, Any],
    resolution: Resolution,
    usage: Mapping[BucketName, BucketUsage] | None,
) -> None:
    """Put ``usage`` beside each quota of a document; null for ``usage`` is a database in trouble.

    Args:
        document: Of the resolution; it is changed.
        resolution: What it shows.
        usage: Of the buckets of which anything is known.
    """
    buckets = buckets_of(resolution)
    for key in resolution.quotas:
        bucket = buckets.get(key)
        known = None if usage is None or bucket is None else usage.get(bucket)
        document["quotas"][key.value]["usage"] = usage_json(known)
    if usage is None:
        document["notes"].append(_NOT_NOW)
