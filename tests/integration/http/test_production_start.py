"""Production with no more settings than it needs, on one machine: it starts, and says what for."""

import json
import re
import signal
from pathlib import Path

import httpx

from app.localdev.kafka import LocalKafka
from app.localdev.postgres import LocalPostgres
from app.postgres.migrate import migrate
from tests.integration.http.service_calls import P, change
from tests.testkit.kafka import unique
from tests.testkit.patience import wait_until
from tests.testkit.service import DEADLINE_S, running_service


def events(log: Path) -> list[str]:
    return [json.loads(line)["event"] for line in log.read_text(encoding="utf-8").splitlines()]


def test_one_role_for_everything_on_one_machine_works_in_production(
    broker: LocalKafka, postgres: LocalPostgres, tmp_path: Path
) -> None:
    owner_url, _ = postgres.create_database("one_role")
    migrate(owner_url, owner_url)
    (tmp_path / "database_url").write_text(f"{owner_url}\n", encoding="utf-8")
    settings = {
        "mode": "production",
        "database_url_file": str(tmp_path / "database_url"),
        "migration_database_url": owner_url,
        "shutdown_delay_s": "0",
    }
    with running_service(tmp_path, broker.bootstrap_servers, "", **settings) as service:
        assert httpx.get(f"{service.url}/readyz?for=write", timeout=DEADLINE_S).status_code == 200
        assert service.alter(change({"user": unique()}, {P: 5})).status_code == 200
        assert service.process is not None
        limits = Path(f"/proc/{service.process.pid}/limits").read_text(encoding="utf-8")
        assert re.search(r"^Max core file size +0 +0 ", limits, re.MULTILINE)
        service.process.send_signal(signal.SIGHUP)
        reread = "nothing to read again: there is no policy"
        wait_until(lambda: reread in events(service.log_path))
        assert service.alter(change({"user": unique()}, {P: 5})).status_code == 200
        assert service.stop() == 0
    logged = "\n".join(events(service.log_path))
    for words in (
        "risky: QUOTAS_TOKENS_FILE",
        "the role quotas_owner owns the audit log",
        "unsafe: QUOTAS_DATABASE_URL: Postgres has fsync off",
    ):
        assert words in logged
