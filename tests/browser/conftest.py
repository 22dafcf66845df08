"""The page in a real browser, on a service whose broker's answers can be lost."""

import json
import math
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from http.server import BaseHTTPRequestHandler
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect, sync_playwright

from app.localdev.kafka import LocalKafka
from app.localdev.postgres import LocalPostgres
from app.pipeline.tables import (
    BUCKET_HOUR,
    DIM_BUCKET,
    RECOMMENDATION,
    STALE_QUOTA,
    THROTTLE_INCIDENT,
    UTILIZATION_DAILY,
    UTILIZATION_HIST,
)
from scripts.npm_packages import browser
from tests.pipeline.publish.results import (
    Rows,
    bucket,
    day,
    hour,
    incident,
    minutes,
    publish_rows,
    recommendation,
    stale,
)
from tests.testkit.event_loops import Silent, in_a_thread, served
from tests.testkit.patience import PATIENT
from tests.testkit.postgres import migrated_database
from tests.testkit.proxy import KafkaProxy, kafka_proxy
from tests.testkit.service import RunningService, running_service

DEADLINE_MS = 30_000
NEXT_DAY = "2026-11-21T06:00:00Z"
"""The day after that of which use is published."""

MIB = 1024 * 1024

HOSTILE = {
    "long": "W" * 512,
    "marks": "a" + "\u0301" * 255,
    "right to left": "\u05d0" * 255,
    "invisible": "\u200b\u202e\ufeff" * 56,
    "controls": "\x01\x1b[31m" * 80,
    "blanks": "a " * 255,
}
"""Names that would destroy a table."""

QUIET = {"bucket_id": 2, "bucket_user": "bob", "quota_user": "", "quota_user_default": True}
LIMITED = {"limit": 8.0 * MIB, "p50": 3.0 * MIB, "p95": 7.0 * MIB, "p99": 7.5 * MIB}


def busy_rate(number: int) -> float:
    """Return the highest rate of an hour: a day's wave, over the limit at noon."""
    return (4.5 + 4 * math.sin((number / 24 - 0.3) * 2 * math.pi)) * MIB


def advice(user: str, **op: Any) -> str:
    """Return the body of a row that advises to set or remove a value of a user."""
    ops = [{"key": "producer_byte_rate", **op}]
    expected = {"producer_byte_rate": 4 * MIB}
    return json.dumps(
        {"alterations": [{"entity": {"user": user}, "ops": ops, "expected": expected}]}
    )


def resized(action: str, user: str, value: float, **columns: Any) -> dict[str, Any]:
    """Advice to give a user another value than 4 MiB/s."""
    return recommendation(
        action,
        2.0,
        bucket_id=sum(user.encode()),
        bucket_user=user,
        quota_user=user,
        limit=4.0 * MIB,
        value=value,
        percentile=value / 1.25,
        peak=value,
        broker_id=1,
        coverage=0.98,
        body=advice(user, value=value),
        **columns,
    )


USE: Rows = {
    DIM_BUCKET: [
        bucket(),
        bucket(level=6, **QUIET),
        *(
            bucket(bucket_id=number, bucket_user=name, quota_user=name, bucket_client="W" * 512)
            for number, name in enumerate(HOSTILE.values(), 10)
        ),
    ],
    UTILIZATION_DAILY: [
        day(**LIMITED, peak=8.5 * MIB, util_p99=0.94),
        day(bucket_id=2, level=6, util_p99=0.31, **{**LIMITED, "p99": 2.5 * MIB}, peak=3.0 * MIB),
        *(
            day(bucket_id=number, **LIMITED, peak=1.0 * MIB, util_p99=0.01)
            for number in range(10, 10 + len(HOSTILE))
        ),
    ],
    # Bins of 3 and of 8.5 MiB/s.
    UTILIZATION_HIST: [minutes(3, 1503), minutes(1, 1608)],
    THROTTLE_INCIDENT: [
        incident("i-1", 840, est_deferred_bytes=90 * MIB),
        incident("i-2", 840, bucket_id=10),
    ],
    RECOMMENDATION: [
        resized(
            "raise",
            "advised-up",
            8.0 * MIB,
            reason="The busiest broker needs 6.4 MiB/s.",
            minutes=9000,
            throttled_minutes=96,
            censored=True,
            throttled_s_now=2710.5,
            throttled_s_mid=0.0,
        ),
        resized("lower", "advised-down", 2.0 * MIB, reason="Half would do."),
        resized("raise", HOSTILE["long"], 8.0 * MIB),
    ],
    STALE_QUOTA: [
        stale(
            "idle",
            "advised-away",
            value=4.0 * MIB,
            reason="Nobody of this name was seen.",
            body=advice("advised-away", remove=True),
        ),
        stale("orphan", HOSTILE["invisible"], winners='[{"user": null}]'),
    ],
    BUCKET_HOUR: [
        hour(number, rate_max=busy_rate(number), limit=8.0 * MIB) for number in range(24)
    ],
}
"""alice's bucket near its limit, bob's far below his."""


@pytest.fixture(scope="session")
def proxy(broker: LocalKafka) -> Iterator[KafkaProxy]:
    """Between the service and the broker."""
    with in_a_thread(partial(kafka_proxy, broker.bootstrap_servers)) as running:
        yield running


class EmptyPage(Silent, BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.end_headers()
        self.wfile.write(b"<!doctype html><title>Portal</title>")


@pytest.fixture(scope="session")
def portal() -> Iterator[str]:
    """The origin whose pages may call the service."""
    with served(EmptyPage) as url:
        yield url


@pytest.fixture(scope="session")
def site(
    proxy: KafkaProxy,
    postgres: LocalPostgres,
    portal: str,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[RunningService]:
    """The service, with published use: alice may alter, bob describe, mallory nothing, root all."""
    folder = tmp_path_factory.mktemp("browser")
    _, url = migrated_database(postgres, folder.name)
    with running_service(
        folder,
        proxy.bootstrap_servers,
        url,
        patience=replace(PATIENT, broker_answer_s=15.0),  # one test waits until it gives up
        cors_origins=portal,
        auditors="User:auditor;User:root",
    ) as service:
        cluster_id = service.api("bob").get("/quotas").json()["cluster_id"]
        rows = {
            table: [{**row, "cluster_id": cluster_id} for row in each]
            for table, each in USE.items()
        }
        publish_rows(url, rows)
        yield service


@pytest.fixture(scope="module")
def chrome() -> Iterator[Browser]:
    """The browser that `make install` fetches; it ends early, as its event loop disturbs others."""
    expect.set_options(timeout=DEADLINE_MS)
    found = browser()
    with sync_playwright() as playwright:
        running = playwright.chromium.launch(
            executable_path=found.program,
            args=["--no-sandbox", "--disable-gpu"],
            env={**os.environ, **found.environ},
        )
        yield running
        running.close()


@dataclass
class Visitors:
    """Opens the page; notes every request, and every fault of the page itself."""

    chrome: Browser
    site: RunningService
    urls: list[str] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)

    def visit(self, path: str, who: str | None = "alice", now: str = NEXT_DAY) -> Page:
        """Return a tab at a path, signed in unless nobody is named, at a time."""
        context = self.chrome.new_context(viewport={"width": 1280, "height": 900})
        context.clock.set_fixed_time(now)
        if who is not None:
            context.add_init_script(f"sessionStorage.setItem('token', '{who}')")
        page = context.new_page()
        page.set_default_timeout(DEADLINE_MS)
        page.on("request", lambda request: self.urls.append(request.url))
        page.on("pageerror", lambda error: self.faults.append(str(error)))
        page.on("console", lambda message: self._note(message.type, message.text))
        page.goto(self.site.url + path)
        return page

    def _note(self, kind: str, text: str) -> None:
        # The browser reports each refusal of the service by its status as well.
        if kind == "error" and not text.startswith("Failed to load resource"):
            self.faults.append(text)


@contextmanager
def visitors_of(
    chrome: Browser, site: RunningService, others: tuple[str, ...] = ()
) -> Iterator[Visitors]:
    """Open tabs on a service; none may send anything to others than these, or have a fault."""
    visitors = Visitors(chrome, site)
    yield visitors
    for context in chrome.contexts:
        context.close()
    assert visitors.faults == []
    origins = (f"{site.url}/", f"blob:{site.url}/", *(f"{other}/" for other in others))
    assert [url for url in visitors.urls if not url.startswith(origins)] == []


@pytest.fixture
def visitors(chrome: Browser, site: RunningService) -> Iterator[Visitors]:
    """Tabs on the service."""
    with visitors_of(chrome, site) as visitors:
        yield visitors
