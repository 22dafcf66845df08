"""``POST /quotas/plans``: what a document would change; a plan, and applying it."""

import asyncio
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Annotated, Any, Final, Literal

from fastapi import Depends, Request, Response
from pydantic import MISSING, AliasPath, BeforeValidator, Field, PrivateAttr, WithJsonSchema

from app.documents.quotas import Document
from app.domain import plans
from app.domain.budgets import budget_violations, budgets_of
from app.domain.entities import ClientQuotaFilter, ClientQuotaFilterComponent
from app.domain.errors import UnreadableRequestError, Violation
from app.domain.plans import DesiredQuota, WhyKept
from app.domain.validation import filter_violations
from app.http.alterations.impact import (
    WITH_IMPACT,
    FoundImpact,
    ImpactAnswer,
    impact_of_values,
)
from app.http.alterations.models import Waiting
from app.http.alterations.routes import alteration_of, alteration_response, altered
from app.http.guards import MayAlter, MayDescribe, actor_of, services_of
from app.http.models import (
    UNSET_IS_MISSING,
    UUID7_PATTERN,
    AlterationId,
    ClusterId,
    Entity,
    EntityWarning,
    ExceededBudget,
    JsonResponse,
    Number,
    Op,
    QuotaValues,
    ResponseModel,
    StoredValue,
    Time,
    quote,
)
from app.http.plans.documents import READERS, DocumentFormat, DocumentOrText, located, read_text
from app.http.query_params import COMPONENT_SCHEMA, parse_component
from app.http.request_body import JsonBody, Key
from app.http.responses import answers, problems, request_examples
from app.http.route import feature_router, path_id
from app.http.validation import JsonValue, RequestBody, at_most, own_error
from app.service.plans import PlanCommand, Plans
from app.service.ports.plans import StoredPlan
from app.service.runtime.tasks import off_loop

MAX_OWNER_CHARACTERS: Final = 128


def _component(value: JsonValue) -> JsonValue:
    if isinstance(value, str) and parse_component(value) is None:
        detail = f"{quote(value)} cannot be read; write it as a filter of GET /quotas."
        raise own_error("unreadable-filter", detail)
    return value


_WHOSE: Final = "In whose name the document is applied; every key has at most one owner."


class PlanRequest(RequestBody):
    """The body of ``POST /quotas/plans``."""

    document: DocumentOrText
    """The desired quotas; a text is read as its `format` says, and its faults have lines."""
    format: DocumentFormat | MISSING = MISSING
    """Of a document that is text: `yaml` (or JSON), or `csv`, as `GET /quotas` writes it or short:
    `user,client-id,ip` and a column for each key."""
    impact: Annotated[bool, WITH_IMPACT] = False
    owner: Annotated[
        str | None,
        WithJsonSchema(
            {
                "type": ["string", "null"],
                "minLength": 1,
                "maxLength": MAX_OWNER_CHARACTERS,
                "description": f"{_WHOSE} By default the caller's principal.",
            }
        ),
    ] = None
    prune: bool = False
    """Remove what the owner applied before, inside the scope, and the document does not name any
    more; without it nothing is removed."""
    adopt: bool = False
    """Let the owner hold the keys of the document that have their values already, too."""
    scope: Annotated[
        list[Annotated[str, BeforeValidator(_component), WithJsonSchema(COMPONENT_SCHEMA)]],
        at_most(1_000, "too-long-scope"),
    ] = Field(default_factory=list)
    """What may be touched: entities that any of these matches; none means every entity. Components
    as in the parameter `filter` of `GET /quotas`."""
    _quotas: tuple[DesiredQuota, ...] = PrivateAttr(())
    _written: str | None = PrivateAttr(None)
    _text: Document | None = PrivateAttr(None)

    @property
    def text(self) -> Document | None:
        """The document with its lines, once it is read; null where it was no text."""
        return self._text

    def wanted(self, principal: str) -> plans.PlanRequest:
        """Return what is desired; who names no owner plans in the principal's name."""
        return plans.PlanRequest(
            quotas=self._quotas,
            owner=principal if self.owner is None else self.owner,
            prune=self.prune,
            adopt=self.adopt,
            scope=tuple(self._components()),
        )

    def _components(self) -> Iterator[ClientQuotaFilterComponent]:
        return (component for text in self.scope if (component := parse_component(text)))

    def broken_rules(self) -> Iterator[Violation]:
        """Yield what is wrong with the document, if it is an object, and the other members."""
        document: Any = self.document
        if isinstance(document, str):
            self._written = document
        else:
            self._quotas = document.desired()
            yield from document.broken_rules()
        yield from self._broken_format()
        for index, component in enumerate(self._components()):
            yield from filter_violations(ClientQuotaFilter((component,)), f"/scope/{index}")
        if self.owner is not None and not _is_owner(self.owner):
            detail = f"An owner is 1 to {MAX_OWNER_CHARACTERS} printable characters."
            yield Violation("/owner", "bad-owner", detail)

    def _broken_format(self) -> Iterator[Violation]:
        document_format: Any = self.format
        if (self._written is None) is not (document_format is MISSING):
            wanted = "belongs to a document that is text"
            if self._written is not None:
                wanted = f"of a document that is text is one of {', '.join(READERS)}"
            detail = f"format {wanted}."
            broken = Violation("/format", "wrong-format", detail)
            raise UnreadableRequestError(detail, violations=[broken])
        if self._written is not None and document_format not in READERS:
            detail = f"{quote(document_format)} is unknown; format is one of {', '.join(READERS)}."
            yield Violation("/format", "unknown-word", detail)

    async def read(self) -> None:
        """Read a document that is text; it takes too long for the event loop."""
        document_format: Any = self.format
        if self._written is not None and document_format in READERS:
            self._text = await asyncio.to_thread(read_text, self._written, document_format)
            self._quotas = tuple(self._text.quotas)


def _is_owner(owner: str) -> bool:
    is_short = 1 <= len(owner) <= MAX_OWNER_CHARACTERS
    return is_short and owner.isprintable() and not owner.isspace()


class ApplyRequest(Waiting):
    """The body of ``POST /quotas/plans/{plan_id}/apply``."""

    force: bool = False
    """Take keys over that other owners hold, and end values that are for a time."""


class ImpactSource(ResponseModel):
    """The entity that an effective value comes from."""

    entity: Entity
    level: Annotated[int, Field(ge=1, le=8)]
    name: str
    """Of the level."""


class AppliedValue(ResponseModel):
    """The value that an owner applied."""

    owner: str
    value: StoredValue


class KeyImpact(ResponseModel):
    """What a change means for the callers of its entity."""

    change: Literal["set", "raised", "lowered", "removed", "unchanged"]
    factor: Number | None
    """New value by old value; null where there are not two."""
    effective_before: StoredValue | None
    """What applies now to the callers of this entity that no more specific entity covers; null:
    unlimited."""
    effective_after: StoredValue | None
    """What would apply to them."""
    source: ImpactSource | None
    """Where the effective value comes from; null where nothing applies."""
    more_specific: Annotated[int, Field(ge=0)]
    """Stored entities with this key that go before this one for some callers."""
    changed_since: Annotated[AppliedValue | MISSING, UNSET_IS_MISSING] = MISSING
    """What its owner applied, where another value is stored now: an alteration by hand, or another
    tool, has changed it since."""


class Impact(ResponseModel):
    """What a change means."""

    summary: str
    """A sentence for people."""
    keys: dict[str, KeyImpact]
    buckets: ImpactAnswer | MISSING = MISSING
    """Of the change of this entity: the buckets that its value limits, or would."""


class PlannedChange(ResponseModel):
    """What would be done to one entity; `before` and `after` are all of its values."""

    entity: Annotated[Entity, Field(validation_alias=AliasPath("alteration", "entity"))]
    ops: Annotated[list[Op], Field(min_length=1, validation_alias=AliasPath("alteration", "ops"))]
    before: QuotaValues
    after: QuotaValues
    impact: Impact


class PlanConflict(ResponseModel):
    """A key of another owner that the plan would change.

    The value that the owner applied, the stored one, and the one that the plan would set.
    """

    entity: Entity
    key: str
    owner: str
    """Who holds the key."""
    held: StoredValue
    current: StoredValue
    proposed: StoredValue | None
    """Null: the key would be removed."""


class UnprunedKey(ResponseModel):
    """A key of the owner's that is not removed although the document lacks it."""

    entity: Entity
    key: str
    value: StoredValue
    reason: WhyKept
    """`changed-since`: the value is not the owner's any more."""


class TemporaryKey(ResponseModel):
    """A key whose value is for a time: the plan leaves it, and `force` ends that."""

    entity: Entity
    key: str
    value: StoredValue | None
    """Null: the key is removed for a time."""
    returns_to: StoredValue | None
    """What it has then; null: it is not set."""
    expires_at: Time
    proposed: Number | None
    """What the document wants; null: no value."""


class Plan(ResponseModel):
    """What would have to change for a document to hold."""

    plan_id: AlterationId
    cluster_id: ClusterId
    author: str
    """Who asked for the plan, as Kafka prints it."""
    owner: Annotated[str, Field(description=_WHOSE)]
    prune: bool
    adopt: bool
    scope: list[str]
    created_at: Time
    expires_at: Time
    base: Annotated[str, Field(pattern="^[0-9a-f]{64}$")]
    """A fingerprint of the values and owners that the plan rests on."""
    changes: list[PlannedChange]
    """One for each entity, in the order of `GET /quotas`."""
    conflicts: list[PlanConflict]
    """What only force would do."""
    unpruned: Annotated[list[UnprunedKey], Field(serialization_alias="kept")]
    """What pruning leaves."""
    warnings: list[EntityWarning]
    """About entities of the document, in its order."""
    temporary: Annotated[list[TemporaryKey] | MISSING, UNSET_IS_MISSING] = MISSING
    """What is for a time of that which the document names, or pruning would remove; only where
    there is some."""
    impact: ImpactAnswer | MISSING = MISSING
    budgets: Annotated[list[ExceededBudget] | MISSING, UNSET_IS_MISSING] = MISSING
    """Budgets of the policy that its apply would exceed, as things stand now; only where there are
    some."""


router = feature_router("plans")

PlanId = Annotated[str, path_id("plan_id", "an answer", UUID7_PATTERN)]


@router.post(
    "/quotas/plans",
    summary="Plan what a document would change",
    responses=answers(Plan, "What would have to change; nothing has.", "plan"),
    openapi_extra=request_examples("desired", "desired-within-a-scope"),
)
async def plan_quotas(
    request: Request,
    granted: MayDescribe,
    body: Annotated[PlanRequest, Depends(JsonBody(PlanRequest))],
) -> Response:
    """Say what would have to change for a document to hold; nothing is changed."""
    await body.read()
    caller = granted.actor.caller
    wanted = body.wanted(caller.principal)
    command = PlanCommand(caller, wanted, tuple(body.scope), body.violations)
    with services_of(request).limits.entities(caller.principal, len(wanted.quotas)):
        with located(body.text):
            plan = await _plans(request).make(granted.actor, command)
        impact = await _impact(request, plan) if body.impact else None
        return await _respond(plan, await _exceeded(request, plan), impact)


@router.get(
    "/quotas/plans/{plan_id}",
    summary="Show one plan",
    responses=answers(Plan, "The plan as it was made.", "plan", errors=("NotFound",)),
)
async def show_plan(request: Request, _: MayDescribe, plan_id: PlanId) -> Response:
    """Show a plan again, as it was made."""
    plan = await _plans(request).plan(plan_id)
    return await _respond(plan, await _exceeded(request, plan))


@router.post(
    "/quotas/plans/{plan_id}/apply",
    summary="Apply one plan",
    responses={
        200: altered("All applied, or nothing was to be done.", "alteration-applied"),
        **problems("NotFound", "PlanExpired", "PlanOutdated", "PlanBusy"),
    },
    openapi_extra=request_examples("apply", "take-over"),
)
async def apply_plan(
    request: Request,
    granted: MayAlter,
    plan_id: PlanId,
    body: Annotated[ApplyRequest, Depends(JsonBody(ApplyRequest))],
    key: Key,
) -> Response:
    """Do what was planned, if everything still is as it was then."""
    alteration = alteration_of(request, granted, key, body, action="apply_plan")
    work = _plans(request).apply(granted.actor, alteration, plan_id, force=body.force)
    return await alteration_response(request, alteration, work)


def _plans(request: Request) -> Plans:
    services = services_of(request)
    return Plans(services.plans, services.alter, services.cluster)


async def _impact(request: Request, plan: StoredPlan) -> FoundImpact:
    values = {change.alteration.entity: change.after for change in plan.changes}
    return await impact_of_values(request, [change.alteration for change in plan.changes], values)


async def _exceeded(request: Request, plan: StoredPlan) -> Sequence[Violation]:
    """Return the budgets that the plan would exceed if it was applied now."""
    alterations = [change.alteration for change in plan.changes]
    budgets = budgets_of(services_of(request).policy.budgets, alterations)
    if not budgets:
        return ()
    quotas = (await actor_of(request).describe_now()).quotas
    return await off_loop(len(quotas), budget_violations, budgets, alterations, quotas)


async def _respond(
    plan: StoredPlan, exceeded: Sequence[Violation], impact: FoundImpact | None = None
) -> Response:
    document = partial(plan_document, plan, impact, exceeded)
    return await off_loop(len(plan.changes), lambda: JsonResponse(document()))


def plan_document(
    plan: StoredPlan, impact: FoundImpact | None = None, exceeded: Sequence[Violation] = ()
) -> Plan:
    """Return the answer to a request for a plan."""
    document = Plan.model_validate(plan)
    if exceeded:
        document.budgets = [ExceededBudget.model_validate(each.budget) for each in exceeded]
    if impact is not None:
        document.impact = impact.answer()
        for written, change in zip(document.changes, plan.changes, strict=True):
            written.impact.buckets = impact.answer(change.alteration.entity)
    return document
