"""Who comes in: first the credential, then the limits, then the rights; and who that is."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from ipaddress import ip_network

import pytest
from starlette.types import Message, Receive, Scope, Send

from app.domain.authorization import AuthorizerSettings
from app.domain.entities import ClientQuotaEntity
from app.domain.errors import NotSentError
from app.http.authentication.proxies import TrustedProxies
from app.http.middleware import ON_OPERATIONS_PORT
from app.http.rate_limits import FAILURES_BURST_S, PUBLIC_BURST_S, Limits
from app.service.auth.authorize import AuthorizationPolicy, ClusterAuthorizer
from app.service.ports.brokers import AclSnapshot
from tests.unit.http.fake_service import (
    ALTERATIONS,
    UNLIMITED,
    Answer,
    FakeService,
    http_scope,
    raw_headers,
    send,
    setting,
)

NARROW = Limits(reads_per_s=2, alterations_per_s=1, requests_at_once=2, failures_per_s=0.5)
BURST = 4
UNKNOWN = "01a1fb9f-e8c0-7c4d-8e9f-0a1b2c3d4e5f"
PUBLIC = ("/livez", "/readyz", "/version", "/metrics", "/problems/rate-limited", "/ui/docs.js")


@pytest.fixture
def service() -> FakeService:
    return FakeService(NARROW)


async def statuses(send: Callable[[], Awaitable[Answer]], times: int) -> list[int]:
    return [(await send()).status for _ in range(times)]


async def test_a_caller_who_reads_too_much_learns_when_to_come_back(service: FakeService):
    assert await statuses(lambda: service.get("/quotas"), BURST) == [200] * BURST
    answer = await service.get("/quotas/resolve?user=alice")
    assert (answer.status, answer.document["code"]) == (429, "rate-limited")
    assert (answer.document["sent_to_cluster"], answer.document["retry"]) == ("no", "safe")
    assert answer.headers["retry-after"] == "1"
    assert answer.document["detail"] == (
        "User:alice sends more than 2 reads a second. Come back after Retry-After."
    )
    assert service.count("rate_limited_total", scope="reads") == 1
    assert service.count("request_rejected_total", reason="rate-limited") == 1
    service.limits_clock += 1.0
    assert await statuses(lambda: service.get("/quotas"), 3) == [200, 200, 429]


async def test_every_route_with_a_credential_counts_and_nobody_else_pays(service: FakeService):
    for path in ("/quotas", "/quotas/resolve?user=a", "/audit", f"{ALTERATIONS}/{UNKNOWN}"):
        assert (await service.get(path)).status != 429
    for path in ("/quotas", "/quotas/capabilities", "/audit", f"{ALTERATIONS}/{UNKNOWN}"):
        assert (await service.get(path)).status == 429
    assert (await service.get("/quotas", "bob")).status == 200
    assert (await service.post(ALTERATIONS, setting(1))).status == 200


async def test_altering_checking_and_taking_back_share_one_limit(service: FakeService):
    answer = await service.post(ALTERATIONS, setting(1))
    alteration_id = answer.document["alteration_id"]
    assert (await service.post(ALTERATIONS, setting(1, validate_only=True))).status == 200
    for path, body in (
        (f"{ALTERATIONS}/{alteration_id}/revert", {}),
        (ALTERATIONS, setting(2)),
        (ALTERATIONS, {"unreadable": True}),
    ):
        answer = await service.post(path, body)
        assert (answer.status, answer.document["code"]) == (429, "rate-limited")
    assert service.count("rate_limited_total", scope="alterations") == 3
    assert service.brokers.quotas[ClientQuotaEntity.of({"user": "alice"})] == {
        "producer_byte_rate": 1.0
    }


async def test_the_limit_is_judged_after_the_credential_and_before_the_rights(service: FakeService):
    for _ in range(2):
        assert (await service.post(ALTERATIONS, setting(1), "bob")).status == 403
    assert (await service.post(ALTERATIONS, setting(1), "bob")).status == 429
    assert (await service.post(ALTERATIONS, setting(1), "stranger")).status == 401
    assert (await service.post(ALTERATIONS, setting(1), None)).status == 401
    await service.services.denials.write()
    attempts = [request.evidence["denied"]["attempts"] for request, _ in service.journal.finals]
    assert attempts == [1, 1]


async def test_what_needs_no_credential_is_never_limited(service: FakeService):
    for path in PUBLIC:
        assert set(await statuses(lambda path=path: service.get(path), 50)) == {200}


async def test_public_routes_are_limited_for_each_address_and_route():
    service = FakeService(replace(UNLIMITED, public_per_s=0.5))
    burst = int(0.5 * PUBLIC_BURST_S)
    for path in PUBLIC:
        assert (await statuses(lambda path=path: service.get(path, None), burst)) == [200] * burst
        answer = await service.get(path, None)
        assert (answer.status, answer.document["code"]) == (429, "rate-limited")
        assert answer.headers["retry-after"] == "2"
    assert service.count("rate_limited_total", scope="public") == len(PUBLIC)
    assert (await service.get("/quotas")).status == 200
    service.limits_clock += 2.0
    assert (await statuses(lambda: service.get("/livez", None), 2)) == [200, 429]
    service.services = replace(service.services, proxies=TrustedProxies((ip_network("127.0.0.1"),)))
    assert (await service.get("/livez", None)).status == 200


async def test_probes_on_the_operations_port_have_no_limit():
    service = FakeService(replace(UNLIMITED, public_per_s=0.5))

    async def there(scope: Scope, receive: Receive, respond: Send) -> None:
        await service.app({**scope, "state": {ON_OPERATIONS_PORT: True}}, receive, respond)

    assert set(await statuses(lambda: send(there, "GET", "/livez"), 50)) == {200}


async def test_bad_credentials_are_limited_counted_and_hurt_nobody(service: FakeService):
    burst = int(NARROW.failures_per_s * FAILURES_BURST_S)
    assert await statuses(lambda: service.get("/quotas", "stranger"), burst) == [401] * burst
    answer = await service.get("/quotas", "stranger")
    assert (answer.status, answer.document["code"]) == (429, "rate-limited")
    assert int(answer.headers["retry-after"]) == 2
    assert (await service.get("/quotas", None)).status == 429
    assert (await service.get("/quotas", "alice")).status == 200
    assert service.count("rate_limited_total", scope="failures") == 2
    refused, none = (
        {"result": "refused", "method": "bearer-token"},
        {"result": "refused", "method": "none"},
    )
    assert service.count("authn_total", reason="invalid-token", **refused) == burst + 1
    assert service.count("authn_total", reason="unauthenticated", **none) == 1


async def test_only_so_many_requests_of_one_caller_are_worked_on(service: FakeService):
    service = FakeService(replace(UNLIMITED, requests_at_once=2))
    running = [await service.held(setting(1, user)) for user in ("a", "b")]
    answer = await service.post(ALTERATIONS, setting(1, "c"))
    assert (answer.status, answer.document["code"]) == (429, "rate-limited")
    assert answer.headers["retry-after"] == "1"
    assert (await service.get("/quotas")).status == 429
    assert (await service.get("/quotas", "bob")).status == 200
    assert service.count("rate_limited_total", scope="at_once") == 2
    service.brokers.gate.set()
    assert [(await item).status for item in running] == [200, 200]
    assert (await service.post(ALTERATIONS, setting(1, "c"))).status == 200


class Exchange:
    """A request whose body or answer gets stuck."""

    def __init__(self, service: FakeService, method: str, path: str, *, body: bool) -> None:
        self.answering = asyncio.Event()
        self.go_on = asyncio.Event()
        self._body = body
        headers = raw_headers(authorization="Bearer alice", content_type="application/json")
        scope = http_scope(method, path, headers)
        self.task = asyncio.ensure_future(service.app(scope, self._receive, self._send))

    async def _receive(self) -> Message:
        if not self._body:
            await self.go_on.wait()
        return {"type": "http.request", "body": b"{}", "more_body": False}

    async def _send(self, message: Message) -> None:
        if message["type"] == "http.response.body":
            self.answering.set()
            await self.go_on.wait()


async def test_a_body_that_is_still_coming_is_no_work():
    service = FakeService(replace(UNLIMITED, requests_at_once=1))
    slow = [Exchange(service, "POST", ALTERATIONS, body=False) for _ in range(5)]
    while service.count("http_server_active_requests") < 5:
        await asyncio.sleep(0)
    assert (await service.post(ALTERATIONS, setting(1))).status == 200
    for item in slow:
        item.go_on.set()
        await item.task


async def test_an_answer_that_is_still_going_is_no_work():
    service = FakeService(replace(UNLIMITED, requests_at_once=1))
    slow = [Exchange(service, "GET", "/quotas", body=True) for _ in range(5)]
    for item in slow:
        await item.answering.wait()
    assert (await service.get("/quotas")).status == 200
    for item in slow:
        item.go_on.set()
        await item.task


async def test_a_request_that_is_cut_off_is_no_longer_worked_on():
    service = FakeService(replace(UNLIMITED, requests_at_once=1))
    running = await service.held(setting(1))
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    service.brokers.gate.set()
    assert (await service.post(ALTERATIONS, setting(1, "bob"))).status == 200


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
    async def nobody_answers(_: float) -> None:
        raise NotSentError("No broker answers.")

    service.acls.get = nobody_answers
    answer = await service.send("GET", "/me")
    assert (answer.status, answer.document["retry"]) == (503, "safe")


@pytest.mark.parametrize("allow", [False, True])
async def test_without_an_authorizer_nobody_may_unless_a_setting_says_so(allow: bool):
    service = FakeService()

    async def none(_: float) -> tuple[AclSnapshot, float]:
        return AclSnapshot((), has_authorizer=False), 1.5

    service.acls.get = none
    policy = AuthorizationPolicy(AuthorizerSettings(), allow_without_authorizer=allow)
    authorizer = ClusterAuthorizer(service.acls, policy)
    service.act_with(authorizer=authorizer)
    answers = [await service.get("/quotas"), await service.post(ALTERATIONS, setting(1))]
    if allow:
        assert [answer.status for answer in answers] == [200, 200]
        return
    for answer in answers:
        problem = answer.document
        assert (answer.status, problem["code"]) == (403, "no-authorizer")
        assert (problem["kafka_error"], problem["sent_to_cluster"]) == ("SECURITY_DISABLED", "no")
        assert "QUOTAS_INSECURE_ALLOW_WITHOUT_AUTHORIZER" in problem["detail"]
