"""Resolution: which stored quota applies to a caller, for each key, and why.

Brokers have no call for it. This is what ``ClientQuotaManager`` and ``ConnectionQuotas`` do with
the default ``client.quota.callback.class``; another callback may decide otherwise. The names that
other rooms need stand here; the parts are the ``resolution_*`` modules.
"""

from app.domain.resolution_client import resolve_client
from app.domain.resolution_index import QuotaIndex
from app.domain.resolution_ip import resolve_ip
from app.domain.resolution_levels import (
    IP_PRECEDENCE,
    PRECEDENCE,
    Bucket,
    IpPrecedenceLevel,
    PrecedenceLevel,
    QuotaSource,
    Slot,
    applicable_levels,
)
from app.domain.resolution_values import ConfiguredQuota, LevelTried, Resolution, ResolvedQuota

__all__ = [
    "IP_PRECEDENCE",
    "PRECEDENCE",
    "Bucket",
    "ConfiguredQuota",
    "IpPrecedenceLevel",
    "LevelTried",
    "PrecedenceLevel",
    "QuotaIndex",
    "QuotaSource",
    "Resolution",
    "ResolvedQuota",
    "Slot",
    "applicable_levels",
    "resolve_client",
    "resolve_ip",
]
