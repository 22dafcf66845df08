"""The entities of an image as JSON: written piece by piece, and the same as written whole."""

import random
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.domain.alterations import Quotas
from app.domain.entities import ClientQuotaEntity
from app.http import json_pieces
from app.http.answers import quota_json
from app.http.etags import text_etag
from app.http.formats import Format
from app.http.json_pieces import Piece, joined
from app.http.json_text import json_bytes
from app.service.cluster_ports import Described, QuotaChanges
from app.service.reading.arranged import ArrangedImages, Rendering
from tests.testkit.fake_ports import EPOCH

NAMES = st.none() | st.sampled_from(["a", "ab", "b", "<default>", "", "x" * 90])
KINDS = st.sampled_from(["user", "client-id", "of another time"])
ENTITIES = st.dictionaries(KINDS, NAMES, min_size=1, max_size=3).map(ClientQuotaEntity.of)
QUOTAS = st.dictionaries(
    ENTITIES, st.dictionaries(st.just("producer_byte_rate"), st.floats(1, 9), min_size=1)
)


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_pieces, "PIECE_ENTRIES", 3)


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
        self._images = ArrangedImages()
        self._before: Quotas | None = None

    async def rendering(self, quotas: Quotas) -> Rendering:
        changes = None if self._before is None else _changes(self._before, quotas)
        self._before = quotas
        arranged = await self._images.in_order(Described(quotas, EPOCH, "cluster", 1, changes))
        assert arranged.rendering is not None
        return arranged.rendering

    async def pieces(self, quotas: Quotas) -> list[Piece]:
        return list(json_pieces.json_pieces(await self.rendering(quotas)))


def _changes(before: Quotas, after: Quotas) -> QuotaChanges:
    gone = {one: {} for one in before if one not in after}
    new = {one: values for one, values in after.items() if before.get(one) != values}
    return QuotaChanges(before, {**gone, **new})


@given(worlds=st.lists(st.tuples(QUOTAS, st.booleans()), min_size=1, max_size=6))
async def test_pieces_are_what_would_be_written_whole(worlds: list[tuple[Quotas, bool]]):
    """Some images are written, and some have passed before anybody asked."""
    images = Images()
    for quotas, is_asked_for in worlds:
        if is_asked_for:
            pieces = await images.pieces(quotas)
            check_text(quotas, _text(pieces))
            assert [piece.begin for piece in pieces] == sorted({piece.begin for piece in pieces})
        else:
            await images.rendering(quotas)


async def test_only_the_pieces_with_a_change_are_written_anew():
    images = Images()
    quotas = users(*range(100))
    before = await images.pieces(quotas)
    assert len(before) > 20
    changed = {**quotas, **{one: {"producer_byte_rate": 2.0} for one in users(50)}}
    after = await images.pieces(changed)
    new = [piece for piece in after if not any(piece is other for other in before)]
    assert len(new) == 1
    assert b'"producer_byte_rate":2' in new[0].text
    assert _text(after) == whole(changed)


async def test_changes_of_several_images_are_made_up_for_together():
    images = Images()
    numbers = set(range(60))
    before = await images.pieces(users(*numbers))
    for number in (10, 11, 45):
        numbers ^= {number, 1000 + number}
        rendering = await images.rendering(users(*numbers))
    after = list(json_pieces.json_pieces(rendering))
    assert _text(after) == whole(users(*numbers))
    assert any(piece is other for piece in after for other in before)
    assert rendering.earlier is None


async def test_crumbs_are_swept_up():
    images = Images()
    numbers = set(range(400))
    await images.pieces(users(*numbers))
    chance = random.Random(1)
    for _ in range(60):
        numbers -= set(chance.sample(sorted(numbers), 6))
        pieces = await images.pieces(users(*numbers))
        assert _text(pieces) == whole(users(*numbers))
        assert len(pieces) <= 2 + 2 * len(numbers) / json_pieces.PIECE_ENTRIES


async def test_the_entity_tag_does_not_depend_on_where_the_pieces_end():
    images = Images()
    await images.pieces(users(*range(60)))
    patched = await images.pieces(users(*range(5, 70)))
    anew = await Images().pieces(users(*range(5, 70)))
    assert [piece.begin for piece in patched] != [piece.begin for piece in anew]
    assert len({text_etag(Format.JSON, "cluster", joined(one)) for one in (patched, anew)}) == 1


async def test_no_entity_is_no_piece():
    images = Images()
    assert await images.pieces({}) == []
    assert _text(await images.pieces(users(1))) == whole(users(1))
    assert await images.pieces({}) == []


def _text(pieces: list[Piece]) -> bytes:
    return b"".join(joined(pieces))


def check_text(quotas: Quotas, written: bytes) -> None:
    """Fail unless each entity is there once, in order; equal sort keys may stand either way."""
    texts = {json_bytes(quota_json(one, values)): one.sort_key() for one, values in quotas.items()}
    found = list(_split(written, texts))
    assert sorted(found) == sorted(texts)
    keys = [texts[text] for text in found]
    assert keys == sorted(keys)


def _split(written: bytes, texts: dict[bytes, object]) -> Iterator[bytes]:
    at = 0
    while at < len(written):
        text = next(one for one in texts if written.startswith(one, at))
        yield text
        at += len(text) + 1
