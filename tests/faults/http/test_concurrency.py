"""No update is lost, and no request is two changes, however many callers there are."""

import asyncio
from collections import Counter
from dataclasses import dataclass, field
from typing import Final

import httpx

from app.domain.entities import ClientQuotaEntity
from app.localdev.kafka import LocalKafka
from tests.faults.http.trouble import callers
from tests.testkit.history.checker import note_figures
from tests.testkit.history.events import Write, metadata_log
from tests.testkit.kafka import unique
from tests.testkit.outages import ALTERATIONS, change
from tests.testkit.service import RunningService
from tests.testkit.sizes import size

KEY: Final = "producer_byte_rate"
TIMES: Final = 3
_AGAIN_S: Final = 0.1


@dataclass
class Count:
    """The answers to callers that count up the value of one user.

    Attributes:
        name: The user.
        statuses: How often which status was answered.
        written: The values whose answer was that they are applied.
    """

    name: str
    statuses: Counter[int] = field(default_factory=Counter)
    written: list[float] = field(default_factory=list)


async def _add_again_and_again(http: httpx.AsyncClient, count: Count, attempts: int) -> None:
    believed = None
    for _ in range(attempts):
        wanted = (believed or 0.0) + 1.0
        body = change(count.name, wanted, wait="none")
        body["alterations"][0]["expected"] = {KEY: believed}
        answer = await http.post(ALTERATIONS, json=body)
        count.statuses[answer.status_code] += 1
        if answer.status_code == 200:
            count.written.append(wanted)
            believed = wanted
        elif answer.status_code == 412:
            (error,) = answer.json()["errors"]
            believed = error["values"]["current"].get(KEY)


async def _ask_thrice(
    http: httpx.AsyncClient, name: str, turns: asyncio.Semaphore, statuses: Counter[int]
) -> None:
    """Let each answer be about the same alteration, and all but one be replays."""
    async with turns:
        asking = (_ask(http, name, 1.0, statuses) for _ in range(TIMES))
        answers = await asyncio.gather(*asking)
        other = await _ask(http, name, 2.0, statuses)
    assert [answer.status_code for answer in answers] == [200] * TIMES
    assert len({answer.json()["alteration_id"] for answer in answers}) == 1
    replayed = [answer.headers.get("Idempotent-Replayed") for answer in answers]
    assert sorted(map(str, replayed)) == ["None", *["true"] * (TIMES - 1)]
    assert (other.status_code, other.json()["code"]) == (422, "idempotency-key-reused")


async def _ask(
    http: httpx.AsyncClient, name: str, value: float, statuses: Counter[int]
) -> httpx.Response:
    """Ask until the answer is not "still running", or "nothing was sent, ask again"."""
    while True:
        body, headers = change(name, value, wait="none"), {"Idempotency-Key": name}
        answer = await http.post(ALTERATIONS, json=body, headers=headers)
        statuses[answer.status_code] += 1
        if answer.status_code not in {409, 503}:
            return answer
        problem = answer.json()
        if answer.status_code == 409:
            assert problem["code"] == "idempotency-key-running", problem
            assert answer.headers["Retry-After"]
        else:
            assert problem["sent_to_cluster"] == "no", problem
        await asyncio.sleep(_AGAIN_S)


def _writes(kafka: LocalKafka, prefix: str) -> list[Write]:
    return [
        record.write
        for record in metadata_log(kafka.directory)
        if (record.write.entity.as_dict().get("user") or "").startswith(prefix)
    ]


def _named(statuses: Counter[int]) -> dict[str, int]:
    return {f"answered {status}": number for status, number in sorted(statuses.items())}


async def test_no_increment_of_an_expected_value_is_lost(
    patient_service: RunningService, kafka: LocalKafka
):
    """Each caller tries again and again to add 1 to what it believes to hold."""
    count, attempts = Count(unique("counter")), size(5, 100)
    async with callers(patient_service) as http, asyncio.TaskGroup() as group:
        for _ in range(size(8, 100)):
            group.create_task(_add_again_and_again(http, count, attempts))
    of_user = ClientQuotaEntity.of({"user": count.name})
    writes = _writes(kafka, count.name)
    logged = [write.value for write in writes if write.entity == of_user]
    note_figures({**_named(count.statuses), "increments in the metadata log": len(logged)})
    assert set(count.statuses) <= {200, 409, 412}
    assert logged == [float(number) for number in range(1, len(logged) + 1)]
    assert sorted(count.written) == logged
    assert logged


async def test_a_request_that_is_sent_three_times_with_its_key_is_one_change(
    patient_service: RunningService, kafka: LocalKafka
):
    """Each user of the team has one intent, and one record in the metadata log."""
    team, requests = unique("thrice"), size(30, 1000)
    turns, statuses = asyncio.Semaphore(20), Counter[int]()
    async with callers(patient_service) as http, asyncio.TaskGroup() as group:
        for number in range(requests):
            group.create_task(_ask_thrice(http, f"{team}-{number}", turns, statuses))
    asked = {"entity": f"user^={team}-", "page_size": "10000"}
    rows = patient_service.api("auditor").get("/audit", params=asked).json()["rows"]
    # What was answered as not sent in time was requested again.
    sent = (row for row in rows if row["outcome"] != "not_sent")
    intents = Counter(row["entity"]["user"] for row in sent)
    records = Counter(write.entity.as_dict()["user"] for write in _writes(kafka, f"{team}-"))
    figures = {"intents": intents.total(), "records in the metadata log": records.total()}
    note_figures({"requests": requests, **_named(statuses), **figures})
    assert set(intents.values()) == {1}
    assert records == intents
