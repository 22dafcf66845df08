"""Resolutions written together are those written one by one; levels, notes and errors."""

import itertools
import json
import math
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.domain.alterations import Quotas
from app.domain.entities import ClientQuotaEntity
from app.domain.errors import QuotaError
from app.domain.resolution_index import QuotaIndex
from app.http.models import answer_head, json_bytes, json_texts
from app.http.resolve.models import ProposedResolution
from app.http.resolve.rendering import resolution_document, resolutions_bytes
from app.http.resolve.routes import resolution_bytes
from app.service.auth.actors import RefusedAtTheActError
from app.service.queries.callbacks import NO_CALLBACK, CallbackInUse
from app.service.queries.resolve import (
    Identity,
    IndexedImage,
    ResolutionBasis,
    ResolveQuery,
    resolved,
)
from tests.testkit.fake_ports import FakeImage
from tests.unit.http.fake_service import FakeService


async def test_a_database_in_trouble_does_not_stop_a_resolution():
    service = FakeService()
    service.analytics.down = True
    answer = await service.get("/quotas/resolve?user=alice&usage=true")
    assert answer.status == 200
    assert {quota["usage"] for quota in answer.document["quotas"].values()} == {None}
    assert [note for note in answer.document["notes"] if note.startswith("The usage is left out")]


async def test_every_level_is_explained_where_that_is_asked_for(service: FakeService):
    for names, value in (
        ({"user": "alice"}, 6.0),
        ({"user": None}, 1.0),
        ({"client-id": None}, 2.0),
    ):
        service.brokers.quotas[ClientQuotaEntity.of(names)] = {"producer_byte_rate": value}
    plain = await service.send("GET", "/quotas/resolve?user=alice")
    assert "levels" not in plain.document["quotas"]["producer_byte_rate"]
    answer = await service.send("GET", "/quotas/resolve?user=alice&explain=true")
    levels = answer.document["quotas"]["producer_byte_rate"]["levels"]
    assert [level["level"] for level in levels] == list(range(1, 9))
    assert [level["level"] for level in levels if level["applies"]] == [3, 6]
    assert [level["value"] for level in levels] == [None, None, 6, None, None, 1, None, 2]
    assert all((level["reason"] is None) == level["applies"] for level in levels)


async def test_an_address_is_resolved_with_its_notes(service: FakeService):
    for name, value in (("10.0.0.9", 2147483647.0), ("010.0.0.9", 6.0), (None, 10.0)):
        entity = ClientQuotaEntity.of({"ip": name})
        service.brokers.quotas[entity] = {"connection_creation_rate": value}
    answer = await service.send("GET", "/quotas/resolve?ip=::ffff:10.0.0.9")
    assert answer.document["identity"] == {"ip": "10.0.0.9"}
    quota = answer.document["quotas"]["connection_creation_rate"]
    assert (quota["value"], quota["shared_by"]) == (2147483647, {"ip": "10.0.0.9"})
    assert quota["source"] == {"entity": {"ip": "10.0.0.9"}, "level": 1, "name": "ip"}
    default = {"entity": {"ip": None}, "level": 2, "name": "default-ip", "value": 10}
    assert quota["overridden"] == [default]
    notes = "\n".join(answer.document["notes"])
    assert "not limited" in notes
    assert "'010.0.0.9'" in notes


async def test_a_name_that_kafka_takes_literally_has_a_note(service: FakeService):
    answer = await service.send("GET", "/quotas/resolve?user=User:alice&client-id=*")
    assert [note.rpartition(": ")[0] for note in answer.document["notes"]] == [
        "Kafka matches names literally",
        "A quota's user is the principal's name without its type",
    ]
    identities = [{"user": "User:alice"}, {"user": "User:bob"}, {"user": "carol"}]
    many = await service.post("/quotas/resolve", {"identities": identities})
    notes = [result["notes"] for result in many.document["results"]]
    assert ["'User:alice'" in notes[0][0], "'User:bob'" in notes[1][0]] == [True, True]
    assert notes[2] == []


async def test_a_what_if_warns_of_names_that_kafka_takes_literally(service: FakeService):
    set_rate = [{"key": "producer_byte_rate", "value": 5}]
    remove = [{"key": "producer_byte_rate", "remove": True}]
    body = {
        "identities": [{"user": "alice"}],
        "alterations": [
            {"entity": {"user": "*"}, "ops": set_rate},
            {"entity": {"client-id": "x-*"}, "ops": remove},
        ],
    }
    answer = await service.post("/quotas/resolve", body)
    (warning,) = answer.document["warnings"]
    assert (warning["entity"], warning["code"]) == ({"user": "*"}, "literal-default")
    body["alterations"] = body["alterations"][1:]
    assert "warnings" not in (await service.post("/quotas/resolve", body)).document


AT = datetime(2026, 11, 21, 1, 2, 3, tzinfo=UTC)
NAMES = (
    "alice",
    "User:bob",
    "tenant-*",
    "etl",
    "%b%s%",
    '"\\0',
    "\x000\x00",
    "\\u00000\\u0000",
    "ü ~*\n",
    "null",
)
ADDRESSES = ("10.0.0.1", "10.0.0.2", "::1", "2001:db8::1")
SPELLINGS = (*ADDRESSES, "10.1", "0:0:0:0:0:0:0:1", "[::1]", "host.example", "127.0.0.1")

STORED_NAMES = st.one_of(st.none(), st.sampled_from(NAMES))
ENTITIES = st.one_of(
    st.fixed_dictionaries({"user": STORED_NAMES}),
    st.fixed_dictionaries({"client-id": STORED_NAMES}),
    st.fixed_dictionaries({"user": STORED_NAMES, "client-id": STORED_NAMES}),
    st.fixed_dictionaries({"user": STORED_NAMES, "future": STORED_NAMES}),
    st.fixed_dictionaries({"ip": st.one_of(st.none(), st.sampled_from(SPELLINGS))}),
    st.fixed_dictionaries({"ip": st.one_of(st.none(), st.just("10.0.0.1")), "user": STORED_NAMES}),
).map(ClientQuotaEntity.of)
KEYS = (
    "producer_byte_rate",
    "consumer_byte_rate",
    "request_percentage",
    "controller_mutation_rate",
    "connection_creation_rate",
    "future_key",
)
ORDINARY = (1.0, 1024.0, 33.25, 1e6)
ODD = (0.0, -0.0, 0.5, -1.0, 2.0**31 - 1, 2.0**53, 2.0**63, 1e300, math.inf, -math.inf, math.nan)
NUMBERS = st.one_of(st.sampled_from(ORDINARY), st.sampled_from(ODD))
VALUES = st.dictionaries(st.sampled_from(KEYS), NUMBERS, max_size=4)
QUOTAS = st.dictionaries(ENTITIES, VALUES, max_size=14)

USERS = ("", "alice", "%b%s%", "nobody")
CLIENT_IDS = (None, "", "etl", '"\\0', "nothing")
IDENTITIES = (
    *(Identity(user, client_id) for user in USERS for client_id in CLIENT_IDS),
    *(Identity(ip=ip) for ip in (*ADDRESSES, "::FFFF:10.0.0.1")),
    *(Identity(name, name) for name in NAMES),
)
UNKNOWN_CALLBACK = CallbackInUse(
    'com.example."%b\\u00000\\u0000"', is_authoritative=False, notes=("It may be otherwise.",)
)
CALLBACKS = st.sampled_from((NO_CALLBACK, NO_CALLBACK, UNKNOWN_CALLBACK))


def basis(
    identities: Sequence[Identity],
    present: QuotaIndex,
    proposed: QuotaIndex | None = None,
    rules: CallbackInUse = NO_CALLBACK,
) -> ResolutionBasis:
    query = ResolveQuery(tuple(identities))
    return ResolutionBasis(query, IndexedImage("Cluster", AT, present, rules, {}), proposed)


def each_alone(whole: ResolutionBasis) -> bytes:
    def document(index: QuotaIndex, identity: Identity) -> dict[str, Any]:
        return resolution_document(resolved(index, identity), whole.image.rules)

    results = []
    for identity in whole.query.identities:
        result = document(whole.image.index, identity)
        if whole.proposed is not None:
            result["proposed"] = document(whole.proposed, identity)
        results.append(result)
    head = answer_head(whole.image.cluster_id, whole.image.as_of)
    return json_bytes({**head, "results": results}) + b"\n"


@given(QUOTAS, CALLBACKS)
def test_the_present(quotas: Quotas, rules: CallbackInUse) -> None:
    whole = basis(IDENTITIES, QuotaIndex.of(quotas), None, rules)
    assert resolutions_bytes(whole) == each_alone(whole)


@given(QUOTAS, CALLBACKS)
def test_a_document_is_what_the_model_makes_of_the_resolution(
    quotas: Quotas, rules: CallbackInUse
) -> None:
    index = QuotaIndex.of(quotas)
    for identity, explain in itertools.product(IDENTITIES, (False, True)):
        resolution = resolved(index, identity, explain=explain)
        document = resolution_document(resolution, rules)
        content = {**document, "quotas": resolution.quotas}
        model = ProposedResolution.model_validate(content)
        assert json_bytes(document) == json_bytes(model.model_dump(by_alias=True))


def test_answers_to_long_names_are_not_cached() -> None:
    index, memo = QuotaIndex.of({}), dict[Any, Any]()
    for name in ("alice", "a" * 10_000):
        query = ResolveQuery((Identity(name),))
        image = IndexedImage("Cluster", AT, index, NO_CALLBACK, memo)
        resolution_bytes(ResolutionBasis(query, image, None))
    assert list(memo[NO_CALLBACK]) == [Identity("alice")]


def test_answers_are_cached_for_one_callback_at_a_time() -> None:
    index, memo = QuotaIndex.of({}), dict[Any, Any]()
    query = ResolveQuery((Identity("alice"),))
    for rules in (NO_CALLBACK, UNKNOWN_CALLBACK):
        image = IndexedImage("Cluster", AT, index, rules, memo)
        resolution_bytes(ResolutionBasis(query, image, None))
        assert list(memo) == [rules]


@given(QUOTAS, QUOTAS, QUOTAS)
def test_a_what_if_over_an_index_that_was_patched(
    quotas: Quotas, since: Quotas, then: Quotas
) -> None:
    present = QuotaIndex.of(quotas).with_values(since)
    whole = basis(IDENTITIES, present, present.with_values(then))
    assert resolutions_bytes(whole) == each_alone(whole)


def test_each_pattern_of_levels_with_thousands_of_names() -> None:
    """Every third name has a rule at each level that bears it; the numbers all differ."""
    quotas: dict[ClientQuotaEntity, dict[str, float]] = {}
    rules: list[dict[str, Any]] = []
    for at in range(0, 3000, 3):
        user, client_id = f"ü{at}", f"client {at}"
        rules += [{"user": user}, {"client-id": client_id}, {"user": user, "client-id": client_id}]
        rules += [{"user": None, "client-id": client_id}, {"user": user, "client-id": None}]
    rules += [{"user": None}, {"client-id": None}, {"user": None, "client-id": None}]
    for at, names in enumerate(rules):
        keys = ("producer_byte_rate", "consumer_byte_rate")[: 1 + at % 2]
        quotas[ClientQuotaEntity.of(names)] = dict.fromkeys(keys, 1000.0 + at)
    identities = [Identity(f"ü{at}", f"client {at - at % 2}") for at in range(3000)]
    whole = basis(identities, QuotaIndex.of(quotas))
    text = resolutions_bytes(whole)
    assert text == each_alone(whole)
    users = [result["identity"]["user"] for result in json.loads(text)["results"]]
    assert users == [identity.user for identity in identities]


def test_a_name_that_is_no_unicode_text_is_written_too() -> None:
    """The rules of the request refuse it; what is written stays JSON all the same."""
    whole = basis([Identity("\ud800"), Identity("a")] * 2, QuotaIndex.of({}))
    assert json.loads(resolutions_bytes(whole)) == json.loads(each_alone(whole))


@given(st.lists(st.one_of(st.text(), st.integers(-(2**70), 2**70), st.floats(allow_nan=False))))
def test_texts_are_those_of_each_scalar(scalars: list[Any]) -> None:
    finite = [scalar for scalar in scalars if scalar not in {math.inf, -math.inf}]
    assert json_texts(finite) == [json_bytes(item) for item in finite]


@pytest.mark.parametrize(
    ("error", "status", "recorded"),
    [
        (QuotaError("A fault."), 500, 0),
        (RefusedAtTheActError("No.", kafka_error="CLUSTER_AUTHORIZATION_FAILED"), 403, 1),
        (ValueError("a bug"), 500, 0),
    ],
)
async def test_errors_meet_the_handlers_of_the_application(
    service: FakeService,
    monkeypatch: pytest.MonkeyPatch,
    error: Exception,
    status: int,
    recorded: int,
) -> None:
    async def fail(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr(FakeImage, "image", fail)
    answer = await service.get("/quotas/resolve?user=alice")
    assert answer.status == status
    assert answer.document["request_id"] == answer.headers["x-request-id"]
    assert len(service.journal.log) == recorded
    assert service.count("http_server_active_requests") == 0
