"""What one broker of a fake cluster has seen of the metadata log, and what it shows of it."""

import time

from app.domain.entities import ClientQuotaEntity
from tests.testkit.fake_broker_controller import FakeController
from tests.testkit.fake_broker_quotas import Values, apply


class FakeImage:
    """Never goes back.

    Attributes:
        lag_s: How late this broker fetches what is committed; its log end tells of it.
        publishing_s: How much later it shows that; its log end does not tell of it.
        cut_off: It fetches nothing any more, and shows what it has without an error.
    """

    def __init__(self, controller: FakeController) -> None:
        self.lag_s = 0.0
        self.publishing_s = 0.0
        self.cut_off = False
        self._controller = controller
        self._fetched = 0
        self._published = 0
        self._quotas: dict[ClientQuotaEntity, Values] = {}

    @property
    def log_end(self) -> int:
        """The offset up to which this broker has the log."""
        self._fetch()
        return self._controller.end_of(self._fetched)

    @property
    def quotas(self) -> dict[ClientQuotaEntity, Values]:
        """What this broker shows."""
        self._fetch()
        until = time.monotonic() - self.lag_s - self.publishing_s
        while self._published < self._fetched and self._committed(self._published) <= until:
            for change in self._controller.batches[self._published].changes:
                apply(change, self._quotas)
            self._published += 1
        return self._quotas

    def _fetch(self) -> None:
        until = time.monotonic() - self.lag_s
        while (
            not self.cut_off
            and self._fetched < len(self._controller.batches)
            and self._committed(self._fetched) <= until
        ):
            self._fetched += 1

    def _committed(self, batch: int) -> float:
        return self._controller.batches[batch].committed_at
