"""Who may not any more by the time that the body is there: nothing is sent, nothing is answered."""

import json
from collections.abc import Callable
from typing import Any

import pytest
from starlette.types import Message

from app.domain.entities import ClientQuotaEntity
from tests.unit.http.fake_service import ALTERATIONS, Answer, FakeService, http_scope, raw_headers

ALICE = ClientQuotaEntity.of({"user": "alice"})
RATE = "producer_byte_rate"
SETTING = {"entity": {"user": "alice"}, "ops": [{"key": RATE, "value": 5}]}
OF_ALICE = f"/quotas/{ALICE.key}"
DOCUMENT = {
    "apiVersion": "quotas/v1",
    "quotas": [{"entity": {"user": "alice"}, "values": {RATE: 5}}],
}
UNCHANGED = {**DOCUMENT, "quotas": [{"entity": {"user": "alice"}, "values": {RATE: 9}}]}

OLD_S = 11.0
"""The age of rights that are too old to alter by."""


@pytest.fixture
def service() -> FakeService:
    service = FakeService()
    service.brokers.quotas[ALICE] = {RATE: 9.0}
    service.acls.may.append(("alice", "DESCRIBE_CONFIGS"))
    return service


async def late(
    service: FakeService, method: str, path: str, body: Any, meanwhile: Callable[[], None]
) -> Answer:
    """Send a request as alice; something happens between its headers and its body."""
    sent: list[Message] = []

    async def receive() -> Message:
        meanwhile()
        content = b"" if body is None else json.dumps(body).encode()
        return {"type": "http.request", "body": content, "more_body": False}

    async def respond(message: Message) -> None:
        sent.append(message)

    headers = raw_headers(authorization="Bearer alice", content_type="application/json")
    await service.app(http_scope(method, path, headers), receive, respond)
    content = b"".join(message.get("body", b"") for message in sent[1:])
    return Answer(sent[0]["status"], {}, content, has_read=True)


async def planned(service: FakeService, document: Any) -> str:
    answer = await service.post("/quotas/plans", {"document": document})
    return f"/quotas/plans/{answer.document['plan_id']}/apply"


async def path_of(service: FakeService, what: str) -> str:
    if what == "revert":
        answer = await service.post(ALTERATIONS, {"alterations": [SETTING]})
        return f"{ALTERATIONS}/{answer.document['alteration_id']}/revert"
    if what.startswith("apply"):
        return await planned(service, UNCHANGED if "without" in what else DOCUMENT)
    return {"alter": ALTERATIONS, "check": ALTERATIONS, "replace": OF_ALICE}[what]


REQUESTS: dict[str, tuple[str, Any]] = {
    "alter": ("POST", {"alterations": [SETTING]}),
    "check": ("POST", {"alterations": [SETTING], "validate_only": True}),
    "replace": ("PUT", {"values": {RATE: 5}}),
    "revert": ("POST", {}),
    "apply": ("POST", {}),
    "apply a plan without changes": ("POST", {}),
}


def take_the_right(service: FakeService) -> None:
    service.acls.may.clear()


def take_the_credential(service: FakeService) -> None:
    service.names.nobody.add("alice")


@pytest.mark.parametrize(
    ("take", "status", "code"),
    [
        (take_the_right, 403, "cluster-authorization-failed"),
        (take_the_credential, 401, "invalid-token"),
    ],
)
@pytest.mark.parametrize("what", REQUESTS)
async def test_rights_and_credentials_are_judged_again_right_before_the_intent(
    service: FakeService,
    what: str,
    take: Callable[[FakeService], None],
    status: int,
    code: str,
):
    method, body = REQUESTS[what]
    path = await path_of(service, what)
    before, stored = len(service.journal.intents), dict(service.brokers.quotas[ALICE])
    service.acls.age_s = OLD_S
    answer = await late(service, method, path, body, lambda: take(service))
    assert (answer.status, answer.document["code"]) == (status, code)
    assert answer.document["sent_to_cluster"] == "no"
    assert len(service.journal.intents) == before
    assert service.brokers.quotas[ALICE] == stored
    denied = [request for request, _ in service.journal.finals if request.action == "denied"]
    assert len(denied) == (status == 403)


async def test_a_removal_without_a_body_is_judged_again_too(service: FakeService):
    service.acls.age_s = OLD_S
    asked: list[str] = []
    authenticate = service.names.authenticate

    async def count(presented: Any) -> Any:
        asked.append("again")
        return await authenticate(presented)

    service.names.authenticate = count  # type: ignore[method-assign]
    assert (await service.send("DELETE", OF_ALICE)).status == 200
    assert len(asked) == 2


async def test_what_was_decided_a_short_while_ago_is_not_asked_again(service: FakeService):
    answer = await late(
        service, *("POST", ALTERATIONS), REQUESTS["alter"][1], lambda: take_the_right(service)
    )
    assert answer.status == 200


async def test_the_intent_has_the_evidence_of_the_last_decision(service: FakeService):
    service.acls.age_s = OLD_S

    def renew() -> None:
        service.acls.age_s = 0.25

    answer = await late(service, "POST", ALTERATIONS, REQUESTS["alter"][1], renew)
    assert answer.status == 200
    assert service.journal.intents[0].evidence["acl_age_s"] == 0.25


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/quotas/plans", {"document": DOCUMENT}),
        ("/quotas/resolve", {"identities": [{"user": "alice"}]}),
    ],
)
async def test_reads_with_a_body_are_judged_again_behind_it(
    service: FakeService, path: str, body: Any
):
    service.acls.age_s = 61.0
    answer = await late(service, "POST", path, body, lambda: take_the_right(service))
    assert (answer.status, answer.document["code"]) == (403, "cluster-authorization-failed")


async def test_a_token_that_has_become_another_s_is_refused(service: FakeService):
    service.acls.age_s = OLD_S
    authenticate = service.names.authenticate

    def become_bert() -> None:
        async def another(presented: Any) -> Any:
            caller = await authenticate(presented)
            return type(caller)("User:bert", caller.host, caller.authentication)

        service.names.authenticate = another  # type: ignore[method-assign]

    answer = await late(service, "POST", ALTERATIONS, REQUESTS["alter"][1], become_bert)
    assert (answer.status, answer.document["code"]) == (401, "invalid-token")
    assert service.journal.intents == []
