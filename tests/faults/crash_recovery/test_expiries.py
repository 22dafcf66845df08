"""Values for a time end once, whatever is killed around their ends, and whatever the clocks say."""

import asyncio
import random
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any, Final

import httpx
import pytest

from app.domain.entities import ClientQuotaEntity
from app.localdev.kafka import LocalKafka
from app.localdev.postgres import LocalPostgres
from app.service.ports.alterations import POINTS
from tests.faults.crash_recovery.conftest import empty_log
from tests.faults.crash_recovery.run import FINAL_AFTER_FAULTS_S, Outage, Run, ask, out, reborn
from tests.testkit.history.checker import note_figures
from tests.testkit.history.events import LogRecord, metadata_log
from tests.testkit.kafka import eventually, unique
from tests.testkit.raw_quotas import RawQuotas
from tests.testkit.service import RunningService, from_the_command_line
from tests.testkit.sizes import SEED, size

KEY: Final = "producer_byte_rate"
BEFORE, RAISED, OTHER, FOR_GOOD = 1000.0, 9000.0, 4000.0, 5000.0
EXPIRIES: Final = size(14, 200)
WITHIN_S: Final = size(5.0, 150.0)
"""Over so many seconds they are due, one after the other."""

FAKE_TIME: Final = Path("/usr/lib/x86_64-linux-gnu/faketime/libfaketime.so.1")


@dataclass(frozen=True)
class Raised:
    """A user whose quota is raised for a time, and what becomes of it meanwhile."""

    name: str
    fate: str
    expires_at: datetime

    @property
    def value(self) -> float:
        """What holds in the end."""
        return {"changed": OTHER, "set again": FOR_GOOD}.get(self.fate, BEFORE)


@contextmanager
def run_on(broker: LocalKafka, postgres: LocalPostgres, folder: Path) -> Iterator[Run]:
    read_log = partial(metadata_log, broker.directory)
    with Run(folder, broker.bootstrap_servers, empty_log(postgres), read_log) as running:
        running.final_after_s = FINAL_AFTER_FAULTS_S
        yield running


def change(name: str, value: float) -> dict[str, Any]:
    return {"entity": {"user": name}, "ops": [{"key": KEY, "value": value}]}


async def alter(replica: RunningService, *changes: Mapping[str, Any], **options: Any) -> Any:
    body = {"alterations": changes, **options}
    answer = await ask(replica, "POST", "/quotas/alterations", json=body)
    return answer.raise_for_status().json()


async def raise_for_a_time(replica: RunningService, chance: random.Random) -> list[Raised]:
    """Raise the quotas of many users, each until another time soon."""
    prefix, began = unique("night"), datetime.now(UTC) + timedelta(seconds=3)
    fates = ["ended"] * 8 + ["changed", "set again"]
    raised = [
        Raised(
            f"{prefix}-{number}",
            fates[number % len(fates)],
            began + timedelta(seconds=WITHIN_S * number / EXPIRIES + chance.uniform(0.0, 0.5)),
        )
        for number in range(EXPIRIES)
    ]
    await alter(replica, *(change(user.name, BEFORE) for user in raised))
    for user in raised:
        end = user.expires_at.isoformat()
        await alter(replica, change(user.name, RAISED), expires_at=end, wait="none")
    return raised


async def alter_some(replica: RunningService, broker: LocalKafka, raised: Sequence[Raised]) -> None:
    """Let another tool change some before they are due, and set some again."""
    again = [change(user.name, FOR_GOOD) for user in raised if user.fate == "set again"]
    await alter(replica, *again)
    with RawQuotas(broker.bootstrap_servers) as raw:
        for user in raised:
            if user.fate == "changed":
                await asyncio.to_thread(raw.store, {"user": user.name}, {KEY: OTHER})


async def endure(outages: Sequence[Outage], until: datetime, chance: random.Random) -> None:
    """Let outages happen one after the other until then, and each once at least."""
    number = 0
    while number < len(outages) or datetime.now(UTC) < until:
        await outages[number % len(outages)]()
        number += 1
        await asyncio.sleep(chance.uniform(0.1, size(0.3, 1.5)))


async def ends_of(replica: RunningService, prefix: str) -> Sequence[Any]:
    parameters = {"entity": f"user^={prefix}", "action": "expire", "page_size": 10_000}
    answer = await ask(replica, "GET", "/audit", params=parameters)
    rows: Sequence[Any] = answer.raise_for_status().json()["rows"]
    return rows


async def is_over(run: Run, replica: RunningService) -> bool:
    answer = await ask(replica, "GET", "/quotas/temporary")
    is_empty = answer.is_success and not answer.json()["rows"]
    return is_empty and await asyncio.to_thread(run.is_quiet)


def judge(
    raised: Sequence[Raised], rows: Sequence[Any], records: Sequence[LogRecord], back: datetime
) -> dict[str, float]:
    """Check that each has ended once, never early, or was left; return figures."""
    done = Counter(row["entity"]["user"] for row in rows if row["outcome"] == "applied")
    left = Counter(row["entity"]["user"] for row in rows if row["outcome"] == "observed_other")
    late = []
    for user in raised:
        fate = (done[user.name], left[user.name])
        expected = {"ended": (1, 0), "changed": (0, 1), "set again": (0, 0)}[user.fate]
        assert fate == expected, (user, rows)
        entity = ClientQuotaEntity.of({"user": user.name})
        written = [record for record in records if record.write.entity == entity]
        assert written[-1].write.value == user.value, (user, written)
        if user.fate == "ended":
            values = [record.write.value for record in written]
            assert values == [BEFORE, RAISED, BEFORE], (user, written)
            assert written[-1].latest >= user.expires_at, (user, written)
            late.append((written[-1].at - max(user.expires_at, back)).total_seconds())
    open_ends = [row for row in rows if row["outcome"] in {"unknown", "superseded"}]
    assert not open_ends, open_ends
    tries = len(rows) - sum(done.values()) - sum(left.values())
    return {"expiries": len(raised), "tried in vain": tries, "late at most, s": round(max(late), 2)}


async def endured(
    run: Run, broker: LocalKafka, replicas: Sequence[RunningService], outages: Sequence[Outage]
) -> None:
    """Raise, let outages happen around the ends, and judge when all is back."""
    chance = random.Random(SEED)
    raised = await raise_for_a_time(replicas[-1], chance)
    await alter_some(replicas[-1], broker, raised)
    await endure(outages, max(user.expires_at for user in raised), chance)
    back = datetime.now(UTC)
    await run.until_quiet()
    await eventually(partial(is_over, run, replicas[-1]), True)
    rows = await ends_of(replicas[-1], raised[0].name.rpartition("-")[0])
    records = await asyncio.to_thread(metadata_log, broker.directory)
    note_figures(judge(raised, rows, records, back))


async def test_values_end_once_while_replicas_the_broker_and_postgres_are_killed(
    broker: LocalKafka, mortal_postgres: LocalPostgres, tmp_path: Path
):
    with run_on(broker, mortal_postgres, tmp_path) as run:
        replicas = [await run.serve() for _ in range(2)]
        kills = [reborn(replica) for replica in replicas]
        cluster = out(broker.kill, broker.start, size(0.2, 2.0))
        database = out(mortal_postgres.kill, mortal_postgres.start, size(0.2, 2.0))
        frozen = out(replicas[0].freeze, replicas[0].thaw, size(0.5, 7.0))
        await endured(
            run, broker, replicas, [*kills, database, cluster, *size([], [frozen, *kills])]
        )


@pytest.mark.long
async def test_values_end_once_where_the_clock_of_a_replica_jumps(
    broker: LocalKafka, mortal_postgres: LocalPostgres, tmp_path: Path
):
    """It goes an hour ahead, and back, and an hour behind: Postgres's clock counts."""
    assert FAKE_TIME.exists(), "install libfaketime"
    now = tmp_path / "now"
    now.write_text("+0")
    with run_on(broker, mortal_postgres, tmp_path) as run:
        jumping = await run.serve()
        jumping.kill()
        jumping.launch = from_the_command_line
        jumping.environ |= {
            "LD_PRELOAD": str(FAKE_TIME),
            "FAKETIME_TIMESTAMP_FILE": str(now),
            "FAKETIME_NO_CACHE": "1",
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
        }
        await asyncio.to_thread(jumping.start)
        steady = await run.serve()
        jumps = [
            out(partial(now.write_text, f"{hours:+d}h"), partial(now.write_text, "+0"), 3.0)
            for hours in (1, -1)
        ]
        await endured(run, broker, [jumping, steady], [*jumps, reborn(jumping), reborn(steady)])


@pytest.mark.long
@pytest.mark.parametrize(
    "point",
    # Without an intent there is no raise, and recovery's own are in what follows a kill.
    [point for point in POINTS if point != "before_intent" and not point.startswith("recovery_")],
)
async def test_a_raise_whose_process_is_killed_keeps_its_end(
    point: str, broker: LocalKafka, postgres: LocalPostgres, tmp_path: Path
):
    """Recovery finds what was applied, and what it returns to is in the log already."""
    name = unique("killed")
    with run_on(broker, postgres, tmp_path) as run:
        steady = await run.serve()
        await run.until_watched()
        await alter(steady, change(name, BEFORE))
        mortal = await run.serve(test_failpoint=f"{point}:kill")
        end = (datetime.now(UTC) + timedelta(seconds=2)).isoformat()
        body = {"alterations": [change(name, RAISED)], "expires_at": end}
        with pytest.raises(httpx.TransportError):
            await ask(mortal, "POST", "/quotas/alterations", json=body)
        await run.until_quiet()
        await eventually(partial(is_over, run, steady), True)
        records = await asyncio.to_thread(metadata_log, broker.directory)
        written = [
            record.write.value
            for record in records
            if record.write.entity == ClientQuotaEntity.of({"user": name})
        ]
        assert written in ([BEFORE], [BEFORE, RAISED, BEFORE])
        applied = point in {"after_answer", "after_conclusion"}
        assert not applied or len(written) == len((BEFORE, RAISED, BEFORE))
