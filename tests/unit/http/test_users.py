"""Who calls, and what the caller may do."""

import pytest

from app.domain.errors import NotSentError
from tests.unit.http.fake_service import FakeService


@pytest.mark.parametrize(
    ("principal", "may"),
    [
        ("alice", {"describe", "alter"}),
        ("bob", {"describe", "scram"}),
        ("auditor", {"audit"}),
        ("carol", set()),
    ],
)
async def test_callers_see_what_they_may(service: FakeService, principal: str, may: set[str]):
    answer = await service.send("GET", "/me", principal=principal)
    document = answer.document
    permissions = document.pop("permissions")
    assert {name for name, allowed in permissions.items() if allowed} == may
    assert document == {
        "cluster_id": await service.brokers.cluster_id(),
        "principal": f"User:{principal}",
        "authentication": "bearer-token",
        "client_address": "127.0.0.1",
        "policy": None,
    }
    assert not service.journal.finals  # asking is no attempt


async def test_without_acls_nothing_is_claimed(service: FakeService):
    async def nobody_answers(**_: float) -> None:
        raise NotSentError("No broker answers.")

    service.application.state.services.authorizer._acls.cluster_acls = nobody_answers
    answer = await service.send("GET", "/me")
    assert (answer.status, answer.document["retry"]) == (503, "safe")


async def test_who_has_no_credential_is_nobody(service: FakeService):
    assert (await service.send("GET", "/me", principal=None)).status == 401
