"""Callers who are logged in at the brokers, and are refused there what had been allowed."""

from functools import partial
from typing import Any

import pytest

from app.domain.entities import ALL_ENTITIES, ClientQuotaEntity, ClientQuotaFilter
from app.domain.errors import BrokerError
from app.service.auth.actors import CallerQuotaAdmin
from app.service.ports.brokers import Described
from tests.testkit.fake_ports import FakeBrokers, Verdicts, refused
from tests.unit.http.fake_service import ALTERATIONS, Answer, FakeService, setting

DENIED = "CLUSTER_AUTHORIZATION_FAILED"
ALICE = ClientQuotaEntity.of({"user": "alice"})
PATH = f"/quotas/{ALICE.key}"


class Rights:
    def forget(self) -> None:
        """Do nothing: the actor's authorizer is another one."""


class Refusing(FakeBrokers):
    """Refuses every describe."""

    async def describe_client_quotas(
        self,
        quota_filter: ClientQuotaFilter,
        *,
        broker_id: int | None = None,
        timeout_s: float | None = None,
    ) -> Described:
        raise BrokerError("own account", code="service-account-not-authorized", kafka_error=DENIED)


def log_in(service: FakeService, brokers: FakeBrokers) -> None:
    """Let callers act as if they were logged in at these brokers."""
    admin = CallerQuotaAdmin(brokers, Rights(), "User:alice")
    describe_now = partial(admin.describe_client_quotas, ALL_ENTITIES)
    service.act_with(admin=admin, reader=admin, describe_now=describe_now, is_logged_in=True)


@pytest.fixture
def service(service: FakeService) -> FakeService:
    """Return a service whose brokers refuse to alter."""

    def refuse(alterations: Any, _: bool) -> Verdicts:
        return {each.entity: refused(DENIED, "Give the service the ACL.") for each in alterations}

    service.brokers.quotas[ALICE] = {"producer_byte_rate": 7.0}
    service.brokers.fault = refuse
    log_in(service, service.brokers)
    return service


def check_refusal(answer: Answer, operation: str) -> None:
    problem = answer.document
    assert (answer.status, problem["code"]) == (403, "cluster-authorization-failed")
    assert f"User:alice lacks {operation}" in problem["detail"]
    assert (problem["kafka_error"], problem["retry"]) == (DENIED, "never")


def denials(service: FakeService) -> list[tuple[str, str]]:
    """Return the route and the refused request of each denied attempt in the log."""
    decisions = [
        request.evidence for request, _ in service.journal.finals if request.action == "denied"
    ]
    return [(decision["route"], decision["asked"]) for decision in decisions]


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("POST", ALTERATIONS, setting(5)),
        ("POST", ALTERATIONS, setting(5, validate_only=True)),
        ("PUT", "/quotas/{entity_key}", {"values": {"producer_byte_rate": 5}}),
        ("DELETE", "/quotas/{entity_key}", None),
    ],
)
async def test_an_alteration_is_refused_and_recorded_with_its_own_route(
    service: FakeService, method: str, path: str, body: Any
) -> None:
    answer = await service.send(method, path.format(entity_key=ALICE.key), body)
    check_refusal(answer, "ALTER_CONFIGS")
    assert denials(service) == [(f"{method} {path}", "AlterClientQuotas")]
    denied = service.journal.finals[-1][0].evidence["denied"]
    assert denied == {"entities": 1, "first": [{"user": "alice"}], "attempts": 1}


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("POST", ALTERATIONS, setting(5)),
        ("PUT", PATH, {"values": {"producer_byte_rate": 5}}),
        ("DELETE", PATH, None),
    ],
)
async def test_the_answer_to_a_repeated_key_is_the_same_refusal(
    service: FakeService, method: str, path: str, body: Any
) -> None:
    for is_replayed in (False, True):
        answer = await service.send(method, path, body, idempotency_key="once")
        check_refusal(answer, "ALTER_CONFIGS")
        assert (answer.headers.get("idempotent-replayed") == "true") is is_replayed
    assert service.log.count("send") == 1
    assert service.count("quota_alterations_total", verdict="refused") == 1


@pytest.mark.parametrize(
    ("path", "route"),
    [
        ("/quotas", "/quotas"),
        ("/quotas?filter=user=alice", "/quotas"),
        ("/quotas/resolve?user=alice&max_age_ms=0", "/quotas/resolve"),
        (PATH, "/quotas/{entity_key}"),
    ],
)
async def test_a_read_is_refused_and_recorded(service: FakeService, path: str, route: str) -> None:
    log_in(service, Refusing([]))
    check_refusal(await service.get(path), "DESCRIBE_CONFIGS")
    assert denials(service) == [(f"GET {route}", "DescribeClientQuotas")]


async def test_what_the_service_itself_is_refused_is_no_denied_attempt(
    service: FakeService,
) -> None:
    service.act_with(is_logged_in=False)
    answer = await service.post(ALTERATIONS, setting(5))
    assert (answer.status, answer.document["code"]) == (502, "service-account-not-authorized")
    assert denials(service) == []
