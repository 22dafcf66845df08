"""The entities of an image as JSON: each is written once, and all are the same as written whole."""

import json

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from starlette.types import Message

from app.domain.alterations import Quotas
from app.domain.entities import ClientQuotaEntity
from app.http.encoding import json_bytes, quota_json
from app.http.quotas import routes
from app.http.quotas.formats import (
    Format,
    QuotaListingResponse,
    Written,
    encode,
    entry_text,
    written_entries,
)
from app.service.ports.brokers import Described
from app.service.queries.describe import SortedSnapshot, SortedSnapshots
from tests.testkit.fake_ports import EPOCH, changes_between

ODD_NAMES = (
    st.none() | st.text(max_size=20) | st.sampled_from(["%b", '"', ">?~", "ä", "\0\n", "\ud800"])
)
ODD_KINDS = st.sampled_from(["user", "client-id", "ip", "%b of another time"])
ODD_ENTITIES = st.dictionaries(ODD_KINDS, ODD_NAMES, max_size=4).map(ClientQuotaEntity.of)
NUMBERS = st.floats() | st.sampled_from([0.0, -0.0, 2.0**53, 2.0**63, 2.0**64, 1e300, 0.1])
ODD_KEYS = st.sampled_from(["producer_byte_rate", "consumer_byte_rate"]) | st.text(max_size=5)


@given(ODD_ENTITIES, st.dictionaries(ODD_KEYS, NUMBERS, max_size=3))
@example(ClientQuotaEntity(()), {})
@example(ClientQuotaEntity.of({"user": "\ud800"}), {})
def test_an_entity_is_written_as_its_document(entity: ClientQuotaEntity, values: dict[str, float]):
    assert entry_text(entity, values) == json_bytes(quota_json(entity, values))


NAMES = st.none() | st.sampled_from(["a", "ab", "b", "<default>", "", "x" * 90])
KINDS = st.sampled_from(["user", "client-id", "of another time"])
ENTITIES = st.dictionaries(KINDS, NAMES, min_size=1, max_size=3).map(ClientQuotaEntity.of)
QUOTAS = st.dictionaries(
    ENTITIES, st.dictionaries(st.just("producer_byte_rate"), st.floats(1, 9), min_size=1)
)


def users(*numbers: int) -> Quotas:
    return {
        ClientQuotaEntity.of({"user": f"user-{number:04}"}): {"producer_byte_rate": 1.0}
        for number in numbers
    }


class Images:
    """One image after the other, each with what has changed."""

    def __init__(self) -> None:
        self._images = SortedSnapshots()
        self._before: Quotas | None = None

    async def snapshot(self, quotas: Quotas) -> SortedSnapshot:
        changes = None if self._before is None else changes_between(self._before, quotas)
        self._before = quotas
        return await self._images.in_order(Described(quotas, EPOCH, "cluster", 1, changes))

    async def written(self, quotas: Quotas) -> Written:
        return written_entries(await self.snapshot(quotas))


def check(written: Written, quotas: Quotas) -> None:
    """Fail unless each entity is there once, in order; equal sort keys may have any order."""
    texts = {json_bytes(quota_json(key, values)): key.sort_key() for key, values in quotas.items()}
    assert sorted(written.texts) == sorted(texts)
    keys = [texts[text] for text in written.texts]
    assert keys == sorted(keys)
    assert written.size == len(b",".join(written.texts))


@given(worlds=st.lists(st.tuples(QUOTAS, st.booleans()), min_size=1, max_size=6))
async def test_what_is_written_is_what_would_be_written_whole(worlds: list[tuple[Quotas, bool]]):
    """Some images are written, and some have passed before anybody asked."""
    images = Images()
    for quotas, is_asked_for in worlds:
        if is_asked_for:
            check(await images.written(quotas), quotas)
        else:
            await images.snapshot(quotas)


async def test_only_entities_that_several_images_have_changed_are_written_anew():
    images = Images()
    numbers = set(range(60))
    before = await images.written(users(*numbers))
    for number in (10, 11, 45):
        numbers ^= {number, 1000 + number}
        snapshot = await images.snapshot(users(*numbers))
    after = written_entries(snapshot)
    check(after, users(*numbers))
    old = {id(text) for text in before.texts}
    assert sum(id(text) not in old for text in after.texts) == 3
    assert snapshot.earlier is None


@pytest.mark.parametrize("number", [0, 1, 5, 12, 200])
async def test_it_is_what_an_encoder_makes_of_it(number: int, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(routes, "_TEXTS_AT_ONCE", 3)
    quotas = users(*range(number))
    written = await Images().written(quotas)
    answer = QuotaListingResponse("cluster", EPOCH, written.entries)
    sent: list[Message] = []

    async def send(message: Message) -> None:
        sent.append(dict(message))

    async def receive() -> Message:
        raise AssertionError("the sender gets an error when the caller has gone")

    scope = {"type": "http", "asgi": {"spec_version": "2.4"}}
    await routes.stream_written(answer, written, {"ETag": '"a"'})(scope, receive, send)
    body = b"".join(message["body"] for message in sent[1:])
    assert body == b"".join(encode(Format.JSON, answer))
    assert len(json.loads(body)["quotas"]) == number
    headers = dict(sent[0]["headers"])
    assert headers == {b"etag": b'"a"', b"content-length": str(len(body)).encode()}
    assert [message.get("more_body", False) for message in sent[1:]] == [True] * (len(sent) - 2) + [
        False
    ]
