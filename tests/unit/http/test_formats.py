"""Every stored name and value comes back whole in each of the four formats.

The entities of an image as JSON: each is written once, and all are the same as written whole.
"""

import csv
import io
import json
import math
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from app.domain.alterations import Quotas, Values
from app.domain.entities import ClientQuotaEntity
from app.http.models import json_bytes, quota_json
from app.http.quotas import formats, routes
from app.http.quotas.formats import (
    Format,
    QuotaListingResponse,
    Written,
    encode,
    entry_text,
    json_frame,
    metadata_headers,
    written_entries,
)
from app.service.ports.brokers import Described
from app.service.queries.describe import Entry, SortedSnapshot, SortedSnapshots
from tests.testkit.fake_ports import EPOCH, changes_between
from tests.testkit.http import Rows, read_csv, read_json, read_ndjson, read_yaml
from tests.unit.http.fake_service import FakeService

AS_OF = datetime(2026, 11, 21, 1, 2, 3, 456000, UTC)
READERS = {
    Format.JSON: read_json,
    Format.NDJSON: read_ndjson,
    Format.CSV: read_csv,
    Format.YAML: read_yaml,
}
FORMATS = pytest.mark.parametrize("media_type", Format)

HOSTILE = [
    "<default>", "null", "Null", "~", "true", "yes", "NO", "on", "y", "N", "1e3", "0x10", "017",
    "1:30", ".nan", "-.inf", "NaN", "", " ", " a ", "a b", "a,b", 'a"b', '"', "'", "''", "'a",
    "=1+1", "+1", "-1", "@a", "\ta", "\t=a", "\r=a", "\r'=a", "\n=a", "a\nb", "\n", "\r",
    "\r\n", "a\rb", "\x85",
    "a\x85b", "\u2028", "\u2029", "\ufeff", "\u200f\u202e", "\x00", "\x01", "\x1b[31m", "\x7f",
    "\x80", "\x9f", "\xa0", "#a", "a #b", "a: b", "a:b", ":", "- a", "-", "?", "? a", "&a", "*a",
    "!a", "|", ">", "%a", "`a", "{a}", "[a]", "a]", "\\", "\\n", "a\\", "\N{GRINNING FACE}",
    "\N{LATIN SMALL LETTER U WITH DIAERESIS}", "u\N{COMBINING DIAERESIS}", "\U0010ffff", "\uffff",
    "\ufffe", "---", "...", "--- a", "<<", "=", "2026-11-21", "1_000", "0b1", "0o7", "x" * 5000,
    "\n" * 700, "CN=svc,OU=Data Platform,O=Example", "User:alice",
]  # fmt: skip

NUMBERS = [
    1.0, 1024.0, 0.1, 0.01, 1235.0000001, 2.0**53, 2.0**63, math.nextafter(2.0**63, math.inf),
    1e22, 1e16, 123456789012345680.0, 1.5e300, 5e-324, 1.7976931348623157e308, 1e-7, -5.0, -0.5,
    math.nan, math.inf, -math.inf,
]  # fmt: skip


def chunks_of(media_type: Format, answer: QuotaListingResponse) -> list[bytes]:
    texts = [entry_text(*entry) for entry in answer.entries]
    return list(encode(media_type, answer, texts))


def body_of(media_type: Format, entries: Sequence[Entry]) -> bytes:
    return b"".join(chunks_of(media_type, QuotaListingResponse("c1", AS_OF, entries)))


def same(left: Rows, right: Rows) -> bool:
    def comparable(rows: Rows) -> list[Any]:
        return [
            (entity, {key: repr(value) for key, value in values.items()}) for entity, values in rows
        ]

    return comparable(left) == comparable(right)


def expected(entries: list[tuple[ClientQuotaEntity, Values]]) -> Rows:
    return [(entity.as_dict(), dict(values)) for entity, values in entries]


def user(name: str | None) -> ClientQuotaEntity:
    return ClientQuotaEntity.of({"user": name})


SHAPES_OF_NAMES = [
    {"ip": None},
    {"ip": "10.0.0.1"},
    {"client-id": None},
    {"client-id": ""},
    {"user": None},
    {"user": None, "client-id": None},
    {"user": "<default>"},
    {"user": "a", "client-id": "b"},
]
QUOTAS = {
    "hostile names": [
        (ClientQuotaEntity.of({"user": name, "client-id": None}), {"producer_byte_rate": 1.0})
        for name in HOSTILE
    ],
    "odd numbers": [(user(f"u{index}"), {"k": value}) for index, value in enumerate(NUMBERS)],
    "absent, default and named": [
        (ClientQuotaEntity.of(shape), {"k": 1.0, "l": 2.5}) for shape in SHAPES_OF_NAMES
    ],
    "nothing": [],
}


@FORMATS
@pytest.mark.parametrize("entries", QUOTAS.values(), ids=QUOTAS)
def test_odd_quotas_come_back(media_type: Format, entries: list[Entry]):
    assert same(READERS[media_type](body_of(media_type, entries)), expected(entries))


@FORMATS
def test_odd_keys_come_back(media_type: Format):
    entries = [(user("a"), {name: 1.0}) for name in HOSTILE]
    rows = READERS[media_type](body_of(media_type, entries))
    merged = {key: value for _, values in rows for key, value in values.items()}
    assert merged == dict.fromkeys(HOSTILE, 1.0)


NAMES = st.none() | st.text(st.characters(codec="utf-8"), max_size=20) | st.sampled_from(HOSTILE)
SHAPES = st.dictionaries(st.sampled_from(["user", "client-id", "ip"]), NAMES, min_size=1)
VALUES = st.dictionaries(
    st.text(st.characters(codec="utf-8"), max_size=12),
    st.floats().filter(lambda value: not (value == 0 and math.copysign(1, value) < 0)),
    min_size=1,
    max_size=4,
)


@FORMATS
@given(shape=SHAPES, values=VALUES)
def test_any_quota_comes_back(
    media_type: Format, shape: dict[str, str | None], values: dict[str, float]
):
    entries = [(ClientQuotaEntity.of(shape), values)]
    read = READERS[media_type](body_of(media_type, entries))
    ordered = [(entity.as_dict(), dict(sorted(stored.items()))) for entity, stored in entries]
    assert same(read, ordered)


def test_the_json_document_is_that_of_the_contract():
    answer = QuotaListingResponse(
        "c1", AS_OF, [(user("alice"), {"producer_byte_rate": 1024.0})], "next"
    )
    document = json.loads(b"".join(chunks_of(Format.JSON, answer)))
    assert list(document) == ["cluster_id", "as_of", "quotas", "next_page_token"]
    assert document == {
        "cluster_id": "c1",
        "as_of": "2026-11-21T01:02:03.456Z",
        "quotas": [
            {
                "entity": {"user": "alice"},
                "entity_key": user("alice").key,
                "values": {"producer_byte_rate": 1024},
            }
        ],
        "next_page_token": "next",
    }


def test_csv_is_the_one_of_the_contract_to_the_byte():
    entries = [
        (
            ClientQuotaEntity.of({"user": "alice", "client-id": None}),
            {"producer_byte_rate": 1024.0},
        ),
        (ClientQuotaEntity.of({"ip": "10.0.0.1"}), {"connection_creation_rate": 5.0}),
        (user('=a,"b"'), {"request_percentage": -0.5}),
    ]
    assert body_of(Format.CSV, entries) == (
        b"user_kind,client_id_kind,ip_kind,user,client-id,ip,key,value\r\n"
        b"name,default,absent,alice,,,producer_byte_rate,1024\r\n"
        b"absent,absent,name,,,10.0.0.1,connection_creation_rate,5\r\n"
        b'name,absent,absent,"\'=a,""b""",,,request_percentage,\'-0.5\r\n'
    )


def test_no_cell_of_csv_begins_like_a_formula():
    entries = [(user(name), {name: value}) for name in HOSTILE for value in NUMBERS]
    text = body_of(Format.CSV, entries).decode()
    cells = [cell for row in csv.reader(io.StringIO(text, newline="")) for cell in row]
    assert not [cell for cell in cells if cell.startswith(("=", "+", "-", "@", "\t", "\r", "\n"))]


def test_yaml_is_the_document_of_export_and_plan():
    entries = [
        (
            ClientQuotaEntity.of({"user": "alice", "client-id": None}),
            {"producer_byte_rate": 2.0**63},
        ),
        (user("yes"), {"request_percentage": 1e22, "consumer_byte_rate": math.nan}),
    ]
    assert body_of(Format.YAML, entries).decode() == (
        "apiVersion: quotas/v1\n"
        "quotas:\n"
        "  - entity: {user: alice, client-id: null}\n"
        "    values: {producer_byte_rate: 9223372036854775807}\n"
        '  - entity: {user: "yes"}\n'
        '    values: {consumer_byte_rate: "NaN", request_percentage: 1.0e+22}\n'
    )


def test_nothing_is_still_a_document():
    assert body_of(Format.NDJSON, []) == b""
    assert body_of(Format.CSV, []) == (
        b"user_kind,client_id_kind,ip_kind,user,client-id,ip,key,value\r\n"
    )
    assert body_of(Format.YAML, []) == b"apiVersion: quotas/v1\nquotas: []\n"


@FORMATS
def test_a_large_answer_comes_in_chunks(media_type: Format):
    entries = [(user(f"user-{index}"), {"k": 1.0}) for index in range(2_500)]
    chunks = chunks_of(media_type, QuotaListingResponse("c1", AS_OF, entries))
    assert max(map(len, chunks)) < sum(map(len, chunks)) / 2
    assert len(READERS[media_type](b"".join(chunks))) == 2_500


@FORMATS
def test_what_only_json_can_carry_is_in_headers(media_type: Format):
    headers = metadata_headers(media_type, QuotaListingResponse("c1", AS_OF, [], "next"))
    parameters = "; charset=utf-8; header=present" if media_type is Format.CSV else ""
    assert headers == {
        "Content-Type": f"{media_type}{parameters}",
        "Vary": "Accept",
        "X-Cluster-Id": "c1",
        "X-As-Of": "2026-11-21T01:02:03.456Z",
        "X-Next-Page-Token": "next",
    }


ODD_NAMES = (
    st.none() | st.text(max_size=20) | st.sampled_from(["%b", '"', ">?~", "ä", "\0\n", "\ud800"])
)
ODD_KINDS = st.sampled_from(["user", "client-id", "ip", "%b of another time"])
ODD_ENTITIES = st.dictionaries(ODD_KINDS, ODD_NAMES, max_size=4).map(ClientQuotaEntity.of)
ODD_NUMBERS = st.floats() | st.sampled_from([0.0, -0.0, 2.0**53, 2.0**63, 2.0**64, 1e300, 0.1])
ODD_KEYS = st.sampled_from(["producer_byte_rate", "consumer_byte_rate"]) | st.text(max_size=5)


@given(ODD_ENTITIES, st.dictionaries(ODD_KEYS, ODD_NUMBERS, max_size=3))
@example(ClientQuotaEntity(()), {})
@example(ClientQuotaEntity.of({"user": "\ud800"}), {})
def test_an_entity_is_written_as_its_document(entity: ClientQuotaEntity, values: dict[str, float]):
    assert entry_text(entity, values) == json_bytes(quota_json(entity, values))


FEW_NAMES = st.none() | st.sampled_from(["a", "ab", "b", "<default>", "", "x" * 90])
KINDS = st.sampled_from(["user", "client-id", "of another time"])
ENTITIES = st.dictionaries(KINDS, FEW_NAMES, min_size=1, max_size=3).map(ClientQuotaEntity.of)
FEW_QUOTAS = st.dictionaries(
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


@given(worlds=st.lists(st.tuples(FEW_QUOTAS, st.booleans()), min_size=1, max_size=6))
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
async def test_its_size_is_that_of_the_body(number: int, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(formats, "AT_ONCE", 3)
    written = await Images().written(users(*range(number)))
    answer = QuotaListingResponse("cluster", EPOCH, written.entries)
    body = b"".join(chunks_of(Format.JSON, answer))
    assert written.size + sum(map(len, json_frame(answer))) == len(body)
    assert len(json.loads(body)["quotas"]) == number


@FORMATS
async def test_a_stream_has_the_bytes_of_a_whole_answer(
    media_type: Format, service: FakeService, monkeypatch: pytest.MonkeyPatch
):
    service.brokers.quotas = {user("alice"): {"producer_byte_rate": 1.0}}
    whole = await service.get("/quotas", accept=media_type)
    monkeypatch.setattr(routes, "_LARGEST_WHOLE", 0)
    streamed = await service.get("/quotas", accept=media_type)
    assert streamed.body == whole.body
    length = str(len(whole.body)) if media_type is Format.JSON else None
    assert streamed.headers.get("content-length") == length
