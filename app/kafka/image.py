"""The describe-all answer, cached with its age."""

from app.domain.filters import ALL_ENTITIES
from app.kafka.cache import Cache
from app.service.ports.brokers import ClientQuotaAdmin, Described
from app.service.runtime.clock import USUAL


class QuotaImage:
    """Every quota of the cluster, as one broker described them at one time.

    Callers who come while a describe is in flight share it, unless it began before they may
    have it: with ``max_age_ms`` 0 nobody gets what was asked for before the call.

    Args:
        admin: Describes.
        timeout_s: How long a describe may take.
    """

    def __init__(self, admin: ClientQuotaAdmin, *, timeout_s: float = USUAL.image_s) -> None:
        self._admin = admin
        self._timeout_s = timeout_s
        self._cache = Cache(self._describe_all)

    async def image(self, *, max_age_ms: int) -> Described:
        """Return an image that is at most ``max_age_ms`` old; its ``as_of`` tells how old.

        Raises:
            QuotaError: As ``ClientQuotaAdmin.describe_client_quotas``.
        """
        max_age_s = max_age_ms / 1000
        young = self._cache.get_cached(max_age_s)
        if young is None:
            return (await self._cache.get(max_age_s))[0]
        described, age_s = young
        self._cache.prefetch(max_age_s, age_s)
        return described

    def forget(self) -> None:
        """Answer from no image that is older than now, because something has changed."""
        self._cache.invalidate()

    async def close(self) -> None:
        """Stop describing."""
        await self._cache.close()

    async def _describe_all(self) -> Described:
        return await self._admin.describe_client_quotas(ALL_ENTITIES, timeout_s=self._timeout_s)
