"""A backup of the audit log, restored into an empty Postgres: the runbook's commands, tried."""

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import psycopg
import pytest

from app.localdev.kafka import LocalKafka
from app.localdev.postgres import LocalPostgres, binary, environment
from tests.integration.http.service_calls import C, P, applied, change, rows
from tests.testkit.documents import ROOT, blocks_of
from tests.testkit.kafka import unique
from tests.testkit.patience import wait_until
from tests.testkit.postgres import SETTINGS, migrated_database
from tests.testkit.service import RunningService, running_service

PAGE: Final = "docs/operating.md"


@pytest.fixture(scope="module")
def empty(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalPostgres]:
    """Another server, with the two roles and an empty database, as deploy/roles.sql makes them."""
    with LocalPostgres(tmp_path_factory.mktemp("restored"), settings=SETTINGS) as server:
        yield server


def run_as_written(mark: str, folder: Path, **variables: str) -> None:
    """Run the block of the page that has a text in it."""
    (block,) = [block for block in blocks_of(PAGE) if mark in block.code]
    environ = environment() | variables
    environ["PATH"] = f"{binary('pg_dump').parent}:{environ['PATH']}"
    done = subprocess.run(
        ["bash", "-eu", "-c", block.code],
        cwd=folder,
        env=environ,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def verified(url: str) -> list[Any]:
    """Return what the query of the page finds wrong in a log."""
    text = (ROOT / PAGE).read_text(encoding="utf-8")
    (query,) = re.findall(r"```sql\n(select at, alteration_id, seq [^`]*)```", text)
    with psycopg.connect(url) as connection:
        assert connection.execute("select count(*) from audit_event").fetchone() > (0,)
        return connection.execute(query).fetchall()


def desired(names: dict[str, str | None], value: int) -> dict[str, Any]:
    quotas = [{"entity": names, "values": {P: value}}]
    return {"apiVersion": "quotas/v1", "quotas": quotas}


def test_a_service_goes_on_from_a_restored_log(
    broker: LocalKafka,
    postgres: LocalPostgres,
    empty: LocalPostgres,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    owner_url, url = migrated_database(postgres, "backed_up")
    prefix = unique("restore")
    mine, owned, lent, later, fresh = (
        {"user": f"{prefix}-{name}"} for name in ("mine", "owned", "lent", "later", "fresh")
    )
    headers = {"Idempotency-Key": prefix}
    body = {"alterations": [change(mine, {P: 5000, C: 6000})], "reason": "before the backup"}
    folders = [tmp_path_factory.mktemp(name) for name in ("before", "after", "dump")]
    with running_service(folders[0], broker.bootstrap_servers, url) as before:
        api = before.api()
        first = api.post("/quotas/alterations", json=body, headers=headers)
        assert first.status_code == 200, first.text
        plan = {"document": desired(owned, 7000), "owner": prefix}
        made = api.post("/quotas/plans", json=plan).json()
        assert api.post(f"/quotas/plans/{made['plan_id']}/apply", json={}).status_code == 200
        assert before.alter(change(lent, {P: 9000}), expires_in="2d").status_code == 200
        filters = {"filter": f"user^={prefix}"}
        recorded = rows(before, **entity(prefix))
        held = api.get("/quotas/temporary", params=filters).json()["rows"]
        run_as_written("--file=quotas.dump", folders[2], QUOTAS_MIGRATION_DATABASE_URL=owner_url)
        applied(before, later, {P: 8000})
    owner = {"QUOTAS_MIGRATION_DATABASE_URL": empty.owner_url}
    run_as_written("pg_restore", folders[2], **owner)
    assert verified(empty.service_url) == []
    with running_service(
        folders[1], broker.bootstrap_servers, empty.service_url, drift_interval_s="1"
    ) as after:
        api = after.api()
        assert api.get("/readyz", params={"for": "write"}).status_code == 200
        assert [
            row for row in rows(after, **entity(prefix)) if row["action"] != "drift"
        ] == recorded
        assert api.get("/quotas/temporary", params=filters).json()["rows"] == held
        listed = api.get("/quotas", params={"owner": prefix}).json()["quotas"]
        assert [quota["owners"] for quota in listed] == [{P: prefix}]
        again = api.post("/quotas/alterations", json=body, headers=headers)
        assert again.headers["Idempotent-Replayed"] == "true"
        assert again.json()["alteration_id"] == first.json()["alteration_id"]
        assert applied(after, fresh, {P: 4000})["before"] == {}
        reverted = api.post(f"{first.headers['Location']}/revert", json={})
        assert (reverted.status_code, reverted.json()["results"][0]["after"]) == (200, {})
        wait_until(lambda: bool(drifts(after, later)), "what came after the backup is not recorded")
        (row,) = drifts(after, later)
        assert (row["before"], row["after"]) == ({}, {P: 8000})
        run_as_written("detach partition", folders[2], MONTH=oldest_month(empty.owner_url), **owner)
        assert applied(after, fresh, {P: 3000})["before"] == {P: 4000}
        assert [row for row in rows(after, **entity(prefix)) if row in recorded] == recorded
    assert verified(empty.service_url) == []
    assert [*folders[2].glob("quotas-y*.dump")]


def oldest_month(url: str) -> str:
    """Return the oldest partition of the log, that of the month before this one, as y2026m10."""
    query = "select min(relid::regclass::text) from pg_partition_tree('audit_event') where isleaf"
    with psycopg.connect(url) as connection:
        ((name,),) = connection.execute(query).fetchall()
    return str(name).removeprefix("audit_event_")


def entity(prefix: str) -> dict[str, str]:
    return {"entity": f"user^={prefix}"}


def drifts(service: RunningService, names: dict[str, str]) -> list[Any]:
    return rows(service, entity=f"user={names['user']}", action="drift")
