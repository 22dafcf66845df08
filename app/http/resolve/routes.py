"""``GET`` and ``POST /quotas/resolve``: who is asked for, what applies to them, and why."""

import asyncio
from collections.abc import Callable, Iterator
from decimal import Decimal
from functools import partial
from typing import Annotated, Any, Final, NotRequired, ParamSpec, TypeVar

from fastapi import Depends, Request, Response
from pydantic import Field, PrivateAttr, WithJsonSchema
from typing_extensions import TypeAliasType, TypedDict

from app.domain.addresses import canonical_ip
from app.domain.callbacks.callback import ignored_by
from app.domain.errors import Violation
from app.domain.expiry import NO_EXPIRIES, Expiries
from app.domain.validation import alteration_warnings
from app.http.alterations.impact import WITH_IMPACT, impact_json, impact_of, impact_of_nothing
from app.http.alterations.models import (
    LONE_SURROGATE,
    UP_TO_MAX_ENTITIES,
    ClientQuotaAlteration,
    Proposals,
    broken_number,
    whole_number,
)
from app.http.guards import actor_of, may_describe, services_of
from app.http.models import (
    IP_SCHEMA,
    MAX_IDENTITIES,
    EntityWarning,
    JsonResponse,
    answer_head,
    child,
    has_lone_surrogate,
    json_bytes,
    quote,
)
from app.http.query_params import MAX_AGE_MS, READ_INTEGER, Flag, QueryParameters, StrictQuery
from app.http.request_body import JsonBody
from app.http.resolve.models import IDENTITY, Resolution, ResolveAnswer
from app.http.resolve.rendering import (
    add_usage,
    buckets_of,
    resolution_document,
    resolutions_bytes,
)
from app.http.responses import JSON, answers, request_examples
from app.http.route import feature_router
from app.http.validation import at_most, strict
from app.service.queries.callbacks import CallbackInUse
from app.service.queries.resolve import (
    DEFAULT_RESOLVE_AGE_MS,
    IndexedImage,
    ResolutionBasis,
    ResolveQuery,
    resolved,
)
from app.service.queries.resolve import Identity as DomainIdentity
from app.service.runtime.tasks import off_loop

P = ParamSpec("P")
T = TypeVar("T")


class ResolveParameters(QueryParameters):
    """The query of ``GET /quotas/resolve``."""

    user: Annotated[str | None, Field(json_schema_extra={"example": "alice"})] = None
    """The user: the principal's name without its type. Needed unless `ip` is there; an
    unauthenticated connection is the user `ANONYMOUS`."""
    client_id: Annotated[str | None, Field(alias="client-id", examples=["etl"])] = None
    """The client-id; missing or empty is a connection without one."""
    ip: Annotated[
        str | None, Field(json_schema_extra={"anyOf": [*IP_SCHEMA["anyOf"], {"type": "null"}]})
    ] = None
    """A literal IPv4 or IPv6 address, instead of `user` and `client-id`."""
    max_age_ms: Annotated[int, Field(ge=0, le=MAX_AGE_MS), READ_INTEGER] = DEFAULT_RESOLVE_AGE_MS
    """How old the image may be that the answer comes from, in milliseconds; 0 reads the broker
    now."""
    explain: Flag = False
    """List every level tried for each key, with the reason where it cannot apply."""
    usage: Flag = False
    """Show beside each quota how the bucket spent its last day."""

    @property
    def query(self) -> ResolveQuery:
        """What to resolve."""
        identity = DomainIdentity(self.user, self.client_id, self.ip)
        return ResolveQuery(
            (identity,),
            max_age_ms=self.max_age_ms,
            explain=self.explain,
            violations=tuple(identity_violations(identity, lambda name: name or "user")),
        )


def identity_violations(
    identity: DomainIdentity, pointer: Callable[[str], str]
) -> Iterator[Violation]:
    """Yield every broken rule of an identity."""
    if identity.ip is None:
        if identity.user is None:
            detail = "Name a user (an unauthenticated connection is ANONYMOUS), or an ip."
            yield Violation(pointer("user"), "identity-without-user", detail)
    else:
        if identity.user is not None or identity.client_id is not None:
            detail = "An identity is an ip, or a user with or without a client-id, not both."
            yield Violation(pointer(""), "invalid-identity-combination", detail)
        if canonical_ip(identity.ip) is None:
            detail = f"{quote(identity.ip)} is not a literal IPv4 or IPv6 address."
            yield Violation(pointer("ip"), "not-an-ip-address", detail)
    for name, text in (("user", identity.user), ("client-id", identity.client_id)):
        if text is not None and has_lone_surrogate(text):
            yield Violation(pointer(name), "lone-surrogate", LONE_SURROGATE)


IdentityItem = TypedDict(
    "IdentityItem",
    {"user": NotRequired[str], "client-id": NotRequired[str], "ip": NotRequired[str]},
)
strict(IdentityItem)

Identity = TypeAliasType("Identity", Annotated[IdentityItem, IDENTITY])


class ResolveRequest(Proposals):
    """The body of ``POST /quotas/resolve``."""

    identities: Annotated[
        list[Identity],
        at_most(MAX_IDENTITIES, "too-many-identities"),
        Field(json_schema_extra={"maxItems": MAX_IDENTITIES}),
    ]
    alterations: Annotated[
        list[ClientQuotaAlteration], UP_TO_MAX_ENTITIES, Field(default_factory=list)
    ]
    """What-if: each entity at most once; nothing is sent."""
    max_age_ms: Annotated[
        Decimal,
        WithJsonSchema({"type": "integer", "minimum": 0, "maximum": MAX_AGE_MS}),
        Field(json_schema_extra={"default": DEFAULT_RESOLVE_AGE_MS}),
    ] = Decimal(DEFAULT_RESOLVE_AGE_MS)
    """How old the image may be, in milliseconds; 0 asks now."""
    impact: Annotated[bool, WITH_IMPACT] = False
    _identities: tuple[DomainIdentity, ...] = PrivateAttr(())

    def broken_rules(self) -> Iterator[Violation]:
        """Read the request, then yield what is wrong with it."""
        self._read(self.alterations)
        self._identities = tuple(
            [
                DomainIdentity(item.get("user"), item.get("client-id"), item.get("ip"))
                for item in self.identities
            ]
        )
        for index, identity in enumerate(self._identities):
            if identity.ip is None and identity.user is not None and _is_ascii(identity):
                continue
            yield from identity_violations(identity, partial(_pointer, f"/identities/{index}"))
        yield from broken_number("max_age_ms", self.max_age_ms, MAX_AGE_MS)
        if self.impact and "alterations" not in self.model_fields_set:
            yield impact_of_nothing("alterations, which this request has not,")

    def query(self) -> ResolveQuery:
        """Return what to resolve."""
        return ResolveQuery(
            self._identities,
            self.changes if "alterations" in self.model_fields_set else None,
            whole_number(self.max_age_ms, MAX_AGE_MS, DEFAULT_RESOLVE_AGE_MS),
            violations=self.violations,
            expected={each.ordinal: each.expected for each in self.changes},
        )


def _pointer(base: str, name: str) -> str:
    return child(base, name) if name else base


def _is_ascii(identity: DomainIdentity) -> bool:
    return f"{identity.user}{identity.client_id}".isascii()


_LONGEST_CACHED_BYTES: Final = 4096
"""Longer answers, for long names, are written anew each time."""

_MOST_CACHED: Final = 1_000
"""With so many answers they are forgotten."""


def _memo_beside(memo: dict[object, Any], expiries: Expiries) -> dict[object, Any]:
    """Return what is cached of an index for these temporary values, and for no earlier ones."""
    held: Expiries | None
    beside: dict[object, Any]
    held, beside = memo.get(_memo_beside, (None, {}))
    if held is not expiries:
        beside = {}
        memo[_memo_beside] = expiries, beside
    return beside


def _texts_of(memo: dict[object, Any], rules: CallbackInUse) -> dict[DomainIdentity, bytes]:
    """Return what is cached of this callback; that of an earlier one is forgotten."""
    if not rules.model.is_pure:
        return {}
    texts: dict[DomainIdentity, bytes] | None = memo.get(rules)
    if texts is None:
        for earlier in [key for key in memo if isinstance(key, CallbackInUse)]:
            del memo[earlier]
        texts = memo[rules] = {}
    return texts


def resolution_bytes(basis: ResolutionBasis, expiries: Expiries = NO_EXPIRIES) -> bytes:
    """Return the answer for one identity; the same callers are asked for again and again.

    Texts are cached with the index, for what is for a time: call it on the event loop, but where
    the callback is not pure and nothing is cached.
    """
    image, identity = basis.image, basis.query.identities[0]
    memo = _memo_beside(image.memo, expiries) if expiries else image.memo
    texts = _texts_of(memo, image.rules)
    text = texts.get(identity)
    if text is None:
        resolution = resolved(image.index, identity, basis.callback)
        text = json_bytes(resolution_document(resolution, image.rules, expiries))[1:]
        if len(text) <= _LONGEST_CACHED_BYTES:
            if len(texts) >= _MOST_CACHED:
                texts.clear()
            texts[identity] = text
    return b"%b,%b\n" % (json_bytes(answer_head(image.cluster_id, image.as_of))[:-1], text)


router = feature_router("resolve")


@router.get(
    "/quotas/resolve",
    summary="Resolve one identity",
    dependencies=[Depends(may_describe)],
    responses=answers(
        Resolution, "What applies for each key, and why.", "resolution-client", "resolution-address"
    ),
)
async def resolve_quotas(
    request: Request,
    parameters: Annotated[ResolveParameters, Depends(StrictQuery(ResolveParameters))],
) -> Response:
    """Report for each key which quota applies to one identity, and which entities it overrides."""
    query = parameters.query
    basis = await services_of(request).resolve.basis(actor_of(request), query)
    expiries = services_of(request).temporary.image.values
    identity, image = query.identities[0], basis.image
    if not (query.explain or parameters.usage):
        content = await _decide(image, resolution_bytes, basis, expiries)
        return Response(content, media_type=JSON)
    explained = partial(resolved, explain=query.explain)
    resolution = await _decide(image, explained, image.index, identity, basis.callback)
    document = {
        **answer_head(image.cluster_id, image.as_of),
        **resolution_document(resolution, image.rules, expiries),
    }
    if parameters.usage:
        buckets = list(buckets_of(resolution).values())
        usage = await services_of(request).analytics.usage(image.cluster_id, buckets)
        add_usage(document, resolution, usage)
    return JsonResponse(document)


async def _decide(
    image: IndexedImage, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs
) -> T:
    """Do what asks the callback, off the event loop where nobody knows how long that takes."""
    if image.rules.model.is_pure:
        return work(*args, **kwargs)
    return await asyncio.to_thread(work, *args, **kwargs)


@router.post(
    "/quotas/resolve",
    summary="Resolve many identities, and what-if",
    dependencies=[Depends(may_describe)],
    responses=answers(
        ResolveAnswer,
        "In the order of the identities.",
        "resolutions",
        errors=("ExpectationFailed",),
    ),
    openapi_extra=request_examples("present", "what-if"),
)
async def resolve_many(
    request: Request, body: Annotated[ResolveRequest, Depends(JsonBody(ResolveRequest))]
) -> Response:
    """Resolve up to 10,000 identities, and what would apply after proposed alterations."""
    query = body.query()
    basis = await services_of(request).resolve.basis(actor_of(request), query)
    more: dict[str, Any] = {}
    alterations = query.alterations or ()
    if body.impact and basis.proposed is not None:
        found = await impact_of(request, alterations, basis.image, basis.proposed)
        more["impact"] = impact_json(found.answer())
    ignored = ignored_by(basis.image.rules.model, alterations)
    if warnings := [*alteration_warnings(alterations), *ignored]:
        more["warnings"] = [
            EntityWarning.model_validate(warning).model_dump() for warning in warnings
        ]
    expiries = services_of(request).temporary.image.values
    content = await off_loop(len(query.identities), resolutions_bytes, basis, expiries, more)
    return Response(content, media_type=JSON)
