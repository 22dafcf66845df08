"""The port to the pipeline's results in memory: a queue of runs, and usage that tests give."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from app.domain.errors import NotSentError
from app.service.reading.analytics import (
    AnalyticsPage,
    AnalyticsQuery,
    BucketName,
    BucketUsage,
    QueuedRun,
    Result,
    Row,
)
from app.service.reading.analytics_columns import COLUMNS
from tests.testkit.fake_ports import EPOCH


@dataclass
class FakeAnalytics:
    """Without results: only runs are there, once they are queued."""

    runs: dict[str, Row] = field(default_factory=dict)
    known: dict[BucketName, BucketUsage] = field(default_factory=dict)
    down: bool = False

    async def page(self, query: AnalyticsQuery) -> AnalyticsPage:
        rows = [*self.runs.values()] if query.table is Result.RUNS else []
        return AnalyticsPage(None, rows[: query.limit], [], None)

    async def run(self, run_id: str) -> Row | None:
        return self.runs.get(run_id)

    async def queue(self, run: QueuedRun) -> Row:
        row = {
            **dict.fromkeys(COLUMNS[Result.RUNS]),
            "run_id": run.run_id,
            "job": run.job,
            "options": run.options,
            "state": "queued",
            "requested_by": run.requested_by,
            "requested_at": EPOCH,
            "cancel_requested": False,
            "published": [],
        }
        self.runs[run.run_id] = row
        return row

    async def cancel(self, run_id: str) -> Row | None:
        row = self.runs.get(run_id)
        if row is not None:
            ended = {"state": "cancelled", "cancel_requested": True, "ended_at": EPOCH}
            self.runs[run_id] = {**row, **ended}
        return self.runs.get(run_id)

    async def usage(
        self, cluster_id: str, buckets: Sequence[BucketName]
    ) -> Mapping[BucketName, BucketUsage]:
        if self.down:
            raise NotSentError("Postgres does not answer.")
        return {one: self.known[one] for one in buckets if one in self.known}
