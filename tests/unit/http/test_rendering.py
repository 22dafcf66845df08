"""The entities of an image as JSON: written in chunks, and the same as written whole."""

import json
import random
from collections.abc import Iterator

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from starlette.types import Message

from app.domain.alterations import Quotas
from app.domain.entities import ClientQuotaEntity
from app.http.encoding import json_bytes, quota_json
from app.http.quotas import rendering as json_chunks
from app.http.quotas.formats import Format, QuotaListingResponse, encode, text_etag
from app.http.quotas.rendering import Chunk, entry_texts, joined
from app.http.quotas.rendering import json_chunks as written
from app.http.quotas.routes import ChunksResponse
from app.service.ports.brokers import Described
from app.service.queries.describe import Rendering, SortedSnapshots
from tests.testkit.fake_ports import EPOCH, changes_between

ODD_NAMES = (
    st.none() | st.text(max_size=20) | st.sampled_from(["%b", '"', ">?~", "ä", "\0\n", "\ud800"])
)
ODD_KINDS = st.sampled_from(["user", "client-id", "ip", "%b of another time"])
ODD_ENTITIES = st.dictionaries(ODD_KINDS, ODD_NAMES, max_size=4).map(ClientQuotaEntity.of)
NUMBERS = st.floats() | st.sampled_from([0.0, -0.0, 2.0**53, 2.0**63, 2.0**64, 1e300, 0.1])
ODD_KEYS = st.sampled_from(["producer_byte_rate", "consumer_byte_rate"]) | st.text(max_size=5)
ODD_QUOTAS = st.dictionaries(
    ODD_ENTITIES, st.dictionaries(ODD_KEYS, NUMBERS, max_size=3), max_size=8
)


@given(ODD_QUOTAS)
@example({ClientQuotaEntity(()): {}})
@example({ClientQuotaEntity.of({"user": "\ud800"}): {}, ClientQuotaEntity.of({"ip": "a"}): {}})
def test_each_is_written_as_by_itself(quotas: Quotas):
    written = [json_bytes(quota_json(entity, values)) for entity, values in quotas.items()]
    assert list(entry_texts(quotas.items())) == written


def test_more_than_are_written_at_once_are_written_in_order():
    shared = {"producer_byte_rate": 5.0}
    quotas: Quotas = {
        ClientQuotaEntity.of({"user": f"user-{number}"}): (
            shared if number % 3 else {"request_percentage": number / 2}
        )
        for number in range(1_700)
    }
    written = [json_bytes(quota_json(entity, values)) for entity, values in quotas.items()]
    assert list(entry_texts(iter(quotas.items()))) == written


NAMES = st.none() | st.sampled_from(["a", "ab", "b", "<default>", "", "x" * 90])
KINDS = st.sampled_from(["user", "client-id", "of another time"])
ENTITIES = st.dictionaries(KINDS, NAMES, min_size=1, max_size=3).map(ClientQuotaEntity.of)
QUOTAS = st.dictionaries(
    ENTITIES, st.dictionaries(st.just("producer_byte_rate"), st.floats(1, 9), min_size=1)
)


@pytest.fixture
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_chunks, "CHUNK_ENTRIES", 3)


def users(*numbers: int) -> Quotas:
    return {
        ClientQuotaEntity.of({"user": f"user-{number:04}"}): {"producer_byte_rate": 1.0}
        for number in numbers
    }


def whole(quotas: Quotas) -> bytes:
    entries = sorted(quotas.items(), key=lambda entry: entry[0].sort_key())
    return b",".join(json_bytes(quota_json(entity, values)) for entity, values in entries)


class Images:
    """One image after the other, each with what has changed."""

    def __init__(self) -> None:
        self._images = SortedSnapshots()
        self._before: Quotas | None = None

    async def rendering(self, quotas: Quotas) -> Rendering:
        changes = None if self._before is None else changes_between(self._before, quotas)
        self._before = quotas
        arranged = await self._images.in_order(Described(quotas, EPOCH, "cluster", 1, changes))
        assert arranged.rendering is not None
        return arranged.rendering

    async def chunks(self, quotas: Quotas) -> list[Chunk]:
        return list(json_chunks.json_chunks(await self.rendering(quotas)))


@pytest.mark.usefixtures("small_chunks")
@given(worlds=st.lists(st.tuples(QUOTAS, st.booleans()), min_size=1, max_size=6))
async def test_chunks_are_what_would_be_written_whole(worlds: list[tuple[Quotas, bool]]):
    """Some images are written, and some have passed before anybody asked."""
    images = Images()
    for quotas, is_asked_for in worlds:
        if is_asked_for:
            chunks = await images.chunks(quotas)
            check_text(quotas, _text(chunks))
            assert [chunk.begin for chunk in chunks] == sorted({chunk.begin for chunk in chunks})
        else:
            await images.rendering(quotas)


@pytest.mark.usefixtures("small_chunks")
async def test_only_the_chunks_with_a_change_are_written_anew():
    images = Images()
    quotas = users(*range(100))
    before = await images.chunks(quotas)
    assert len(before) > 20
    changed = {**quotas, **{user: {"producer_byte_rate": 2.0} for user in users(50)}}
    after = await images.chunks(changed)
    new = [chunk for chunk in after if not any(chunk is other for other in before)]
    assert len(new) == 1
    assert b'"producer_byte_rate":2' in new[0].text
    assert _text(after) == whole(changed)


@pytest.mark.usefixtures("small_chunks")
async def test_changes_of_several_images_are_made_up_for_together():
    images = Images()
    numbers = set(range(60))
    before = await images.chunks(users(*numbers))
    for number in (10, 11, 45):
        numbers ^= {number, 1000 + number}
        rendering = await images.rendering(users(*numbers))
    after = list(json_chunks.json_chunks(rendering))
    assert _text(after) == whole(users(*numbers))
    assert any(chunk is other for chunk in after for other in before)
    assert rendering.earlier is None


@pytest.mark.usefixtures("small_chunks")
async def test_crumbs_are_swept_up():
    images = Images()
    numbers = set(range(400))
    await images.chunks(users(*numbers))
    chance = random.Random(1)
    for _ in range(60):
        numbers -= set(chance.sample(sorted(numbers), 6))
        chunks = await images.chunks(users(*numbers))
        assert _text(chunks) == whole(users(*numbers))
        assert len(chunks) <= 2 + 2 * len(numbers) / json_chunks.CHUNK_ENTRIES


@pytest.mark.usefixtures("small_chunks")
async def test_the_entity_tag_does_not_depend_on_where_the_chunks_end():
    images = Images()
    await images.chunks(users(*range(60)))
    patched = await images.chunks(users(*range(5, 70)))
    anew = await Images().chunks(users(*range(5, 70)))
    assert [chunk.begin for chunk in patched] != [chunk.begin for chunk in anew]
    assert len({text_etag(Format.JSON, "cluster", joined(item)) for item in (patched, anew)}) == 1


@pytest.mark.usefixtures("small_chunks")
async def test_no_entity_is_no_chunk():
    images = Images()
    assert await images.chunks({}) == []
    assert _text(await images.chunks(users(1))) == whole(users(1))
    assert await images.chunks({}) == []


def _text(chunks: list[Chunk]) -> bytes:
    return b"".join(joined(chunks))


def check_text(quotas: Quotas, written: bytes) -> None:
    """Fail unless each entity is there once, in order; equal sort keys may have any order."""
    texts = {json_bytes(quota_json(key, values)): key.sort_key() for key, values in quotas.items()}
    found = list(_split(written, texts))
    assert sorted(found) == sorted(texts)
    keys = [texts[text] for text in found]
    assert keys == sorted(keys)


def _split(written: bytes, texts: dict[bytes, object]) -> Iterator[bytes]:
    at = 0
    while at < len(written):
        text = next(item for item in texts if written.startswith(item, at))
        yield text
        at += len(text) + 1


@pytest.mark.parametrize("number", [0, 1, 5, 12, 200])
async def test_it_is_what_an_encoder_makes_of_it(number: int, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(json_chunks, "CHUNK_ENTRIES", 3)
    quotas = {ClientQuotaEntity.of({"user": f"user-{each}"}): {"k": 1.0} for each in range(number)}
    arranged = await SortedSnapshots().in_order(Described(quotas, EPOCH, "cluster", 1))
    assert arranged.rendering is not None
    entries = arranged.entries or ()
    chunks = written(arranged.rendering)
    answer = QuotaListingResponse("cluster", EPOCH, entries, chunks=chunks)
    sent: list[Message] = []

    async def send(message: Message) -> None:
        sent.append(dict(message))

    async def receive() -> Message:
        raise AssertionError("the sender gets an error when the caller has gone")

    scope = {"type": "http", "asgi": {"spec_version": "2.4"}}
    await ChunksResponse(answer, chunks, {"ETag": '"a"'})(scope, receive, send)
    body = b"".join(message["body"] for message in sent[1:])
    assert body == b"".join(encode(Format.JSON, QuotaListingResponse("cluster", EPOCH, entries)))
    assert len(json.loads(body)["quotas"]) == number
    headers = dict(sent[0]["headers"])
    assert headers == {b"etag": b'"a"', b"content-length": str(len(body)).encode()}
    assert [message.get("more_body", False) for message in sent[1:]] == [True] * (len(sent) - 2) + [
        False
    ]
