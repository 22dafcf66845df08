"""Rights that are taken away, twenty times: no replica lets an alteration pass on old ACLs."""

from pathlib import Path
from typing import Final

import pytest

from app.localdev.postgres import LocalPostgres
from tests.testkit.authorization import decisions_of, judging_broker, replicas, revoke, service_for

TIMES: Final = 20


def test_every_revocation_is_followed_by_both_replicas(
    postgres: LocalPostgres, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("revocations")
    users = ("revoked", "auditor")
    with (
        judging_broker(tmp_path / "judge", users) as kafka,
        service_for(kafka, postgres, folder, users) as service,
        replicas(service, tmp_path) as both,
    ):
        decision_of = decisions_of(service, postgres)
        passed = [revoke(kafka, both, "revoked", decision_of) for _ in range(TIMES)]
    print(f"{TIMES} revocations on 2 replicas; {sum(passed)} alterations passed on ACLs in time")
    assert len(passed) == TIMES
