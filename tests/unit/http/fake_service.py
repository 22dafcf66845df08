"""The whole HTTP interface on fakes, and a caller who sends exactly what is asked."""

import asyncio
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, partial
from http import HTTPStatus
from typing import Any

from jsonschema import Draft202012Validator
from starlette.types import ASGIApp, Message

from app.domain.authorization import AclBinding, AuthorizerSettings
from app.domain.entities import Caller
from app.http.application import choose_cluster, create_application
from app.http.authentication.authenticator import Presented
from app.http.errors import InvalidTokenError
from app.http.guards import ServedClusters, Services
from app.http.middleware import RequestMiddleware
from app.http.rate_limits import Limits, RateLimits
from app.metrics import Metrics
from app.service.alterations.replace import RevertAlterations
from app.service.auth.authorize import (
    AuditTrail,
    AuthorizationPolicy,
    ClusterAuthorizer,
    NoPolicy,
    PolicyGuard,
)
from app.service.auth.denials import DeniedAttempts
from app.service.event_feed import EventFeed
from app.service.ports.brokers import AclSnapshot
from app.service.queries.analytics import Analytics
from app.service.queries.describe import DescribeQuotas
from app.service.queries.resolve import ResolveQuotas
from app.service.queries.temporary import TemporaryImage, TemporaryValues
from app.service.runtime.readiness import Readiness
from app.service.runtime.tasks import AlterationTasks
from tests.testkit.fake_ports import (
    FakeAnalytics,
    FakeBrokers,
    FakeEventLog,
    FakeImage,
    FakeJournal,
    FakePlans,
    FakeTemporary,
    alter_pipeline,
    alter_quotas,
    fake_actor,
    fake_scram_users,
)

RawHeaders = Sequence[tuple[bytes, bytes]]

UNLIMITED = Limits(0, 0, 0, 0)
ALTERATIONS = "/quotas/alterations"
CLUSTER = "default"


def no_services() -> Any:
    raise AssertionError("the services are fakes")


@cache
def document() -> Any:
    """Return the OpenAPI document: it is the same for every service, and takes 0.1 s to write."""
    return create_application(no_services).openapi()


def resolved(node: Any) -> Any:
    """Return what a node of the OpenAPI document refers to."""
    while "$ref" in node:
        target = document()
        for name in node["$ref"].removeprefix("#/").split("/"):
            target = target[name]
        node = target
    return node


@dataclass
class Answer:
    """An answer, and whether the service has asked for the body of the request."""

    status: int
    headers: dict[str, str]
    body: bytes
    has_read: bool

    @property
    def document(self) -> Any:
        return json.loads(self.body)


def http_scope(method: str, path: str, headers: RawHeaders = ()) -> dict[str, Any]:
    """Return the scope of a request from this machine."""
    target, _, query = path.partition("?")
    return {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.4"},
        "http_version": "1.1",
        "method": method,
        "scheme": "http",
        "path": target,
        "raw_path": target.encode("utf-8", "surrogatepass"),
        "query_string": query.encode(),
        "root_path": "",
        "headers": list(headers),
        "client": ("127.0.0.1", 50000),
        "server": ("127.0.0.1", 8080),
    }


def raw_headers(**headers: str) -> list[tuple[bytes, bytes]]:
    """Return headers as bytes; an underscore in a name is a dash."""
    return [
        (name.replace("_", "-").lower().encode(), value.encode()) for name, value in headers.items()
    ]


async def send(
    app: ASGIApp,
    method: str,
    path: str,
    *,
    headers: RawHeaders = (),
    body: Sequence[bytes] = (),
    hangs_up: bool = False,
) -> Answer:
    """Send one request; without any chunk of a body the caller has gone away.

    A caller who hangs up does so at the first bytes of the answer's body.
    """
    incoming = [
        {"type": "http.request", "body": chunk, "more_body": index + 1 < len(body)}
        for index, chunk in enumerate(body)
    ]
    sent: list[Message] = []
    asked_for: list[str] = []

    async def receive() -> Message:
        asked_for.append("body")
        return incoming.pop(0) if incoming else {"type": "http.disconnect"}

    async def keep(message: Message) -> None:
        if hangs_up and message["type"] == "http.response.body":
            raise OSError
        sent.append(message)

    await app(http_scope(method, path, headers), receive, keep)
    received = {name.decode().lower(): value.decode() for name, value in sent[0]["headers"]}
    content = b"".join(message.get("body", b"") for message in sent[1:])
    return Answer(sent[0]["status"], received, content, bool(asked_for))


class Names:
    """A bearer token is the name of a principal; who is in ``nobody`` is nobody."""

    def __init__(self) -> None:
        self.nobody = {"stranger"}

    name = "bearer-token"
    advice = "Who?"
    scheme = "Bearer"

    def is_presented(self, presented: Presented) -> bool:
        return "authorization" in presented.headers

    async def authenticate(self, presented: Presented) -> Caller:
        name = presented.headers["authorization"].removeprefix("Bearer ")
        if name in self.nobody:
            raise InvalidTokenError("Nobody.")
        return Caller(f"User:{name}", presented.address, "bearer-token")


class Acls:
    """alice and bert may alter, bob may describe, SCRAM credentials too."""

    def __init__(self) -> None:
        self.age_s = 1.5
        self.may = [
            ("alice", "ALTER_CONFIGS"),
            ("bert", "ALTER_CONFIGS"),
            ("bob", "DESCRIBE_CONFIGS"),
            ("bob", "DESCRIBE"),
        ]

    async def get(self, max_age_s: float) -> tuple[AclSnapshot, float]:
        bindings = tuple(
            AclBinding("kafka-cluster", "LITERAL", f"User:{name}", "*", operation, "ALLOW")
            for name, operation in self.may
        )
        return AclSnapshot(bindings), self.age_s


@dataclass
class FakeService:
    """The application; ``log`` tells what reached brokers and the audit log, in order.

    ``limits_clock`` is the time that rate limits go by; it stands still.
    """

    limits: Limits = UNLIMITED
    limits_clock: float = 0.0
    log: list[str] = field(default_factory=list)
    policy: PolicyGuard = field(default_factory=NoPolicy)
    cors_origins: Sequence[str] = ()

    def __post_init__(self) -> None:
        self.acls = Acls()
        self.names = Names()
        self.brokers = FakeBrokers(self.log)
        self.journal = FakeJournal(self.log)
        self.metrics = Metrics()
        self.events = FakeEventLog()
        self.analytics = FakeAnalytics()
        self.plans = FakePlans()
        self.temporary = FakeTemporary()
        self.tasks = AlterationTasks()
        self.application = app = create_application(no_services)
        self.counted = self.metrics.of_cluster(CLUSTER)
        services = {CLUSTER: self._services()}
        self.served = ServedClusters(CLUSTER, services, Readiness({}, {}), self.metrics)
        app.state.clusters = self.served
        self.app: ASGIApp = RequestMiddleware(
            choose_cluster(app), self.metrics, cors_origins=self.cors_origins
        )

    def _services(self) -> Services:
        policy = AuthorizationPolicy(AuthorizerSettings(), auditors=frozenset({"User:auditor"}))
        image = FakeImage(self.brokers)
        authorizer = ClusterAuthorizer(self.acls, policy)
        audit = AuditTrail(self.journal, authorizer, self.brokers)
        alterations = self.counted.alterations
        pipeline = alter_pipeline(self.journal, self.tasks, alterations)
        limits = RateLimits(
            self.limits, self.metrics.count_rate_limited, now=lambda: self.limits_clock
        )
        expiries = TemporaryImage(self.temporary, self.brokers)
        alter = alter_quotas(
            pipeline, image, expiries, policy=self.policy, in_progress=limits.entities
        )
        return Services(
            name=CLUSTER,
            authenticators=[self.names],
            own_account=partial(
                fake_actor,
                self.brokers,
                self.tasks,
                authorizer=authorizer,
                describe_now=image.now,
            ),
            denials=DeniedAttempts(self.brokers.cluster_id, self.journal),
            describe=DescribeQuotas(image),
            alter=alter,
            revert=RevertAlterations(audit, alter),
            temporary=TemporaryValues(self.temporary, self.brokers, expiries),
            resolve=ResolveQuotas(image),
            audit=audit,
            feed=EventFeed(self.events, self.brokers, self.counted.events),
            cluster=self.brokers,
            check_cluster=self.brokers.check_cluster,
            cluster_now=lambda: self.brokers.cluster,
            analytics=Analytics(self.analytics, self.brokers),
            plans=self.plans,
            policy=self.policy,
            scram_users=fake_scram_users,
            readiness=Readiness({}, {}),
            metrics=self.counted,
            limits=limits,
            brokers=self._facts,
        )

    @property
    def services(self) -> Services:
        """What answers requests to its one cluster."""
        return self.served.services[CLUSTER]

    @services.setter
    def services(self, services: Services) -> None:
        self.served.services = {CLUSTER: services}

    def act_with(self, **attributes: Any) -> None:
        """Let whoever calls act with these attributes of an actor."""
        own_account = partial(self.services.own_account, **attributes)
        self.services = replace(self.services, own_account=own_account)

    async def _facts(self) -> Mapping[str, Any]:
        return {}

    async def get(self, path: str, principal: str | None = "alice", **headers: str) -> Answer:
        """Send a GET; a header's underscores are dashes."""
        raw = [*credentials(principal), *raw_headers(**headers)]
        return await send(self.app, "GET", path, headers=raw)

    async def post(
        self, path: str, body: Any, principal: str | None = "alice", **headers: str
    ) -> Answer:
        """Send a POST; a header's underscores are dashes."""
        return await self.send("POST", path, body, principal, **headers)

    async def held(self, body: Any, **headers: str) -> asyncio.Task[Answer]:
        """Begin an alteration that is recorded, and waits until ``brokers.gate`` is set."""
        self.brokers.gate = self.brokers.gate or asyncio.Event()
        before = len(self.journal.intents)
        running = asyncio.create_task(self.post(ALTERATIONS, body, **headers))
        while len(self.journal.intents) == before:
            await asyncio.sleep(0)
        return running

    async def send(
        self,
        method: str,
        path: str,
        body: Any = None,
        principal: str | None = "alice",
        **headers: str,
    ) -> Answer:
        """Send a request with a JSON body, or without one, and hold its answer against OpenAPI."""
        raw = [
            *credentials(principal),
            *([] if body is None else [(b"content-type", b"application/json")]),
            *raw_headers(**headers),
        ]
        content = [] if body is None else [json.dumps(body).encode()]
        answer = await send(self.app, method, path, headers=raw, body=content)
        self.check(method, path, answer)
        return answer

    def check(self, method: str, path: str, answer: Answer) -> None:
        """Hold an answer against the OpenAPI document."""
        operation = document()["paths"][_template(path)][method.lower()]
        response = resolved(operation["responses"][str(answer.status)])
        if answer.status == HTTPStatus.NOT_MODIFIED:
            return
        (content,) = response["content"].values()
        schema = {**content["schema"], "components": document()["components"]}
        Draft202012Validator(schema).validate(answer.document)
        optional = {"location", "retry-after", "idempotent-replayed"} & set(answer.headers)
        assert optional <= {name.lower() for name in response["headers"]}
        needed = {
            name.lower()
            for name, header in response["headers"].items()
            if resolved(header)["required"]
        }
        assert needed <= set(answer.headers)

    def count(self, name: str, **labels: str) -> float:
        """Return the value of a metric, be it of the service or of its cluster."""
        value = self.metrics.registry.get_sample_value
        return value(name, labels) or value(name, {**labels, "cluster": CLUSTER}) or 0.0


def refused(service: FakeService, answer: Answer, status: int, violations: str) -> Any:
    """Return the problem, which must list these violations: each a pointer, if any, and a code."""
    problem = answer.document
    assert answer.status == status, problem
    found = sorted(f"{error['pointer']} {error['code']}".strip() for error in problem["errors"])
    assert found == sorted(violations.split(", "))
    assert (problem["sent_to_cluster"], problem["retry"]) == ("no", "never")
    assert service.log == []
    return problem


def _template(path: str) -> str:
    path = path.partition("?")[0]
    if path.endswith("/revert"):
        return f"{ALTERATIONS}/{{alteration_id}}/revert"
    if path.endswith("/apply"):
        return "/quotas/plans/{plan_id}/apply"
    return path if re.fullmatch("/[a-z/]*", path) else "/quotas/{entity_key}"


def credentials(principal: str | None) -> list[tuple[bytes, bytes]]:
    return [] if principal is None else [(b"authorization", f"Bearer {principal}".encode())]


def setting(value: float, user: str = "alice", **more: Any) -> dict[str, Any]:
    """Return a body that sets one quota of one user."""
    ops = [{"key": "producer_byte_rate", "value": value}]
    return {"alterations": [{"entity": {"user": user}, "ops": ops}], **more}
