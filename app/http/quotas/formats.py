"""Documents of ``GET /quotas`` and of capabilities: models, formats, entity tags."""

import hashlib
from binascii import b2a_base64
from collections.abc import AsyncIterator, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from itertools import chain, islice
from typing import Annotated, Any, Final, NamedTuple

import orjson
from pydantic import MISSING, BeforeValidator, Field, WithJsonSchema

from app.documents import API_VERSION
from app.documents.tables import HEADER
from app.documents.text import csv_lines, yaml_float, yaml_text
from app.domain.alterations import JsonNumber, Values
from app.domain.entities import DEFAULT_NAME, ENTITY_TYPES, ClientQuotaEntity, EntityType
from app.domain.expiry import TemporaryValue
from app.domain.quota_keys import Scope
from app.http.errors import NotAcceptableError
from app.http.headers import best_match
from app.http.models import (
    ClusterId,
    Entity,
    EntityKey,
    NextPageToken,
    QuotaValues,
    ResponseModel,
    StoredValue,
    Time,
    all_of_the_keys,
    entity_json,
    json_bytes,
    quota_json,
    rfc3339,
    values_json,
)
from app.http.query_params import (
    MAX_PAGE_SIZE,
    READ_INTEGER,
    Filter,
    Flag,
    PageToken,
    QueryParameters,
)
from app.http.quotas.expiries import NO_NOTES, NO_OWNERS, Notes, Owned, Temporary, note_text
from app.service.queries.describe import Entry, SortedSnapshot

OLDEST_IMAGE_MS: Final = 2**31 - 1
"""The largest ``max_age_ms``: whoever asks for it takes any image there is."""


MaxAgeMs = Annotated[
    int,
    Field(ge=0, le=OLDEST_IMAGE_MS),
    READ_INTEGER,
    Field(
        description=(
            "How old the answer may be, in milliseconds. 0 asks the broker now; more allows an "
            "image that old, and `as_of` tells its time."
        )
    ),
]


class DescribeParameters(QueryParameters):
    """The query of ``GET /quotas``."""

    filter: Annotated[Filter, Field(examples=[["user=alice", "client-id:any"]])] = ()
    """A condition on the entity; several are ANDed, none means every entity. `user=alice` is the
    exact name, `user^=team-a-` the beginning of a name, `user~=backfill` a text in it in any case,
    `user:default` the default entity, `user:any` or `user` any name and the default, `user:absent`
    entities without the type; likewise for `client-id` and `ip`. `any~=backfill` is a text in some
    name of the entity. The first of `=`, `:`, `^` and `~` ends the type, so a name needs nothing
    but URL encoding. Each type at most once; `ip` stands beside no other type."""
    strict: Flag = False
    """Only entities with exactly the filter's types; `:absent` and `any~=` do not count as types.
    Without a component nothing matches, as in the protocol."""
    has_key: Annotated[tuple[str, ...], Field(examples=[["producer_byte_rate"]])] = ()
    """Only entities that have this quota key; several: any of them."""
    owner: Annotated[tuple[str, ...], Field(examples=[["team-a"]])] = ()
    """Only entities of which this owner holds a key, by the plans that it applied; several: any of
    them. The audit log is asked, so there is no answer without it."""
    owners: Flag = False
    """With the owners of each entity that has some, as with `owner`; the same holds for it. In YAML
    they are comments."""
    max_age_ms: MaxAgeMs = 0
    page_size: Annotated[
        Annotated[int, Field(ge=1, le=MAX_PAGE_SIZE), READ_INTEGER] | None, Field(examples=[1000])
    ] = None
    """Entities in one page. Each page is of its own `as_of`; an entity that is there all the while
    is listed exactly once. Without it the whole answer is sent, all of one `as_of`, or with
    `page_token` a page of 1000."""
    page_token: PageToken = None


class Quota(ResponseModel):
    """One entity with its values."""

    entity: Entity
    entity_key: EntityKey
    values: QuotaValues
    temporary: dict[str, Temporary] | MISSING = MISSING
    """Of keys whose value ends by itself: when, and what it returns to; only where some do. What
    another process has changed may be a second old."""
    owners: dict[str, str] | MISSING = MISSING
    """Who holds which key; only where it is asked for, and somebody holds one."""


class QuotaOfEntity(Quota):
    """One entity with its values, at that time."""

    cluster_id: ClusterId
    as_of: Time


class QuotaListing(ResponseModel):
    """The quotas of the entities that match."""

    cluster_id: ClusterId
    as_of: Time
    quotas: list[Quota]
    """Sorted by user, client-id and ip: absent before default before names, names by code point."""
    next_page_token: NextPageToken
    total: Annotated[int, Field(ge=0)] | MISSING = MISSING
    """How many entities match; with pages only."""


class DocumentedQuota(ResponseModel):
    """One entity of a document."""

    entity: Entity
    values: QuotaValues


class QuotaDocument(ResponseModel):
    """The document of export, plan and apply."""

    apiVersion: Annotated[str, WithJsonSchema({"const": API_VERSION})]  # noqa: N815
    quotas: list[DocumentedQuota]


QUOTA_LINES: Final = "One `Quota` in JSON on each line, in the order of `QuotaListing`."
QUOTA_TABLE: Final = (
    "Columns `user_kind`, `client_id_kind`, `ip_kind` (`name`, `default` or `absent`), `user`, "
    "`client-id`, `ip`, `key`, `value`; one row for each value. A cell that begins with one of "
    "`= + - @ '`, a tab, CR or LF has one leading `'`, which a reader takes off again. RFC 4180."
)


def _in_order(kinds: Collection[EntityType]) -> list[EntityType]:
    return [kind for kind in ENTITY_TYPES if kind in kinds]


class KeyRule(ResponseModel):
    """What a quota key limits, and how."""

    unit: str
    """Of the value, such as `bytes/s`."""
    scope: Scope
    """Who counts: each broker on its own, or the cluster."""
    entity_types: Annotated[list[EntityType], BeforeValidator(_in_order)]
    """The types that entities with this key are made of."""
    integral: bool
    """Whether a fraction is refused."""
    minimum: Annotated[
        StoredValue,
        WithJsonSchema({"type": "number", "description": "The smallest value accepted."}),
    ]
    maximum: Annotated[
        StoredValue,
        WithJsonSchema({"type": "number", "description": "The largest value accepted."}),
    ]


class BrokerFacts(ResponseModel):
    """Which brokers this service works with, and what the one in use reported."""

    oldest: str
    """The oldest release that has the quota interface."""
    certified: str
    """The newest release that the tests run against."""
    describe_api_version: int | None
    """The newest DescribeClientQuotas of the broker in use; null: none."""
    alter_api_version: int | None
    """The newest AlterClientQuotas of the broker in use; null: none."""
    metadata_version: int | None
    """The finalized level of `metadata.version`; null: not reported."""


def _positive(description: str) -> Any:
    return Field(ge=1, description=description)


class RequestLimits(ResponseModel):
    """How much one request may ask for."""

    body_bytes: Annotated[int, _positive("A request's body.")]
    changes_per_request: Annotated[int, _positive("Changed keys in one alteration.")]
    encoded_bytes_per_request: Annotated[int, _positive("Encoded records of one alteration.")]
    name_bytes: Annotated[int, _positive("A name, in bytes of UTF-8.")]
    identities_per_request: Annotated[int, _positive("Identities resolved at once.")]
    reason_characters: Annotated[int, _positive("The reason of an alteration.")]
    wait_ms: Annotated[int, _positive("The longest wait, in milliseconds.")]


class Capabilities(ResponseModel):
    """What can be asked for."""

    entity_types: list[EntityType]
    keys: Annotated[dict[str, KeyRule], Field(json_schema_extra=all_of_the_keys)]
    brokers: BrokerFacts
    limits: RequestLimits


AT_ONCE: Final = 1_000
"""Entities in a chunk of an answer, or rows of CSV: 100 to 200 KB."""


class Format(StrEnum):
    """The media types of ``GET /quotas``; the first is the default."""

    JSON = "application/json"
    NDJSON = "application/x-ndjson"
    CSV = "text/csv"
    YAML = "application/yaml"

    @property
    def content_type(self) -> str:
        """The value of ``Content-Type``."""
        return "text/csv; charset=utf-8; header=present" if self is Format.CSV else self.value


@dataclass(frozen=True, slots=True)
class QuotaListingResponse:
    """What ``GET /quotas`` answers; ``entries`` are sorted by ``ClientQuotaEntity.sort_key``.

    Without pages ``total`` is null.
    """

    cluster_id: str
    as_of: datetime
    entries: Sequence[Entry]
    next_page_token: str | None = None
    total: int | None = None


def negotiate(accept: str | None) -> Format:
    """Return the format that the caller likes best; null or empty means JSON."""
    media_type = best_match(accept, tuple(Format))
    if media_type is None:
        raise NotAcceptableError(f"Accept one of {', '.join(Format)}.")
    return Format(media_type)


def encode(
    media_type: Format,
    answer: QuotaListingResponse,
    texts: Sequence[bytes],
    notes: Notes = NO_NOTES,
    owned: Owned = NO_OWNERS,
) -> Iterator[bytes]:
    """Yield the body in chunks.

    Args:
        media_type: Of the body.
        answer: What it has.
        texts: Its entries in JSON.
        notes: What is for a time, for the comments of a document.
        owned: Who holds which key, for the same.
    """
    match media_type:
        case Format.JSON:
            head, tail = json_frame(answer)
            return chain([head], _joined(texts, b","), [tail])
        case Format.NDJSON:
            return chain(_joined(texts, b"\n"), [b"\n"] if texts else [])
        case Format.CSV:
            return _in_chunks(csv_rows(answer.entries))
        case Format.YAML:
            return _in_chunks(yaml_rows(answer.entries, notes, owned))


def metadata_headers(media_type: Format, answer: QuotaListingResponse) -> dict[str, str]:
    """Return ``Content-Type``, ``Vary``, and what only the JSON document can hold.

    ``X-Cluster-Id``, ``X-As-Of`` and ``X-Next-Page-Token`` come with every format.
    """
    headers = {
        "Content-Type": media_type.content_type,
        "Vary": "Accept",
        "X-Cluster-Id": answer.cluster_id,
        "X-As-Of": rfc3339(answer.as_of),
    }
    if answer.next_page_token is not None:
        headers["X-Next-Page-Token"] = answer.next_page_token
    return headers


_ENTRY: Final = b'{"entity":%b,"entity_key":"%b","values":%b}'
_URL_SAFE: Final = bytes.maketrans(b"+/", b"-_")


def entry_text(entity: ClientQuotaEntity, values: Values) -> bytes:
    """Return what ``json_bytes(quota_json(entity, values))`` is, in half of its time."""
    try:
        key = b2a_base64(orjson.dumps(entity.as_dict()), newline=False).translate(_URL_SAFE, b"=")
        names, numbers = orjson.dumps(entity_json(entity)), orjson.dumps(values_json(values))
    except TypeError:  # a lone surrogate, which no broker sends
        return json_bytes(quota_json(entity, values))
    return _ENTRY % (names, key, numbers)


class Written(NamedTuple):
    """Entries in JSON; ``size`` has the commas between them, too."""

    entries: Sequence[Entry]
    texts: Sequence[bytes]
    size: int


def written_entries(snapshot: SortedSnapshot) -> Written:
    """Return the entries of a snapshot in JSON, written once; the caller holds its turn.

    An entry that did not change is the same object as in the earlier image, and its text is taken
    from there. Objects are compared: to hash 100,000 entities would take four times as long.
    """
    if Written not in snapshot.memo:
        earlier, snapshot.earlier = snapshot.earlier or {}, None
        before: Written = earlier.get(Written, Written((), (), 0))
        entries = snapshot.entries
        text_of = dict(zip(map(id, before.entries), before.texts, strict=True))
        texts = [text_of.get(id(entry)) or entry_text(*entry) for entry in entries]
        size = sum(map(len, texts)) + max(0, len(texts) - 1)
        snapshot.memo[Written] = Written(entries, texts, size)
    written: Written = snapshot.memo[Written]
    return written


def json_frame(answer: QuotaListingResponse) -> tuple[bytes, bytes]:
    """Return what stands before and behind the entries in JSON."""
    cluster_id, as_of = json_bytes(answer.cluster_id), json_bytes(rfc3339(answer.as_of))
    head = b'{"cluster_id":%b,"as_of":%b,"quotas":[' % (cluster_id, as_of)
    total = b"" if answer.total is None else b',"total":%d' % answer.total
    return head, b'],"next_page_token":%b%b}\n' % (json_bytes(answer.next_page_token), total)


def _joined(texts: Sequence[bytes], separator: bytes) -> Iterator[bytes]:
    for begin in range(0, len(texts), AT_ONCE):
        chunk = separator.join(texts[begin : begin + AT_ONCE])
        yield separator + chunk if begin else chunk


def _in_chunks(rows: Iterator[bytes]) -> Iterator[bytes]:
    while chunk := b"".join(islice(rows, AT_ONCE)):
        yield chunk


async def without_thread(chunks: Iterable[bytes]) -> AsyncIterator[bytes]:
    """Yield chunks that take no time to make, as fast as the caller takes them."""
    for chunk in chunks:
        yield chunk


def csv_rows(entries: Iterable[Entry]) -> Iterator[bytes]:
    r"""Yield the header and the rows in UTF-8; lines end with ``\r\n``."""
    rows = chain.from_iterable(_rows(entity, values) for entity, values in entries)
    return (line.encode() for line in csv_lines(chain([HEADER], rows)))


def _rows(entity: ClientQuotaEntity, values: Values) -> Iterator[list[str]]:
    names = entity.as_dict()
    kinds = [_kind(names, kind) for kind in ENTITY_TYPES]
    cells = [names.get(kind) or "" for kind in ENTITY_TYPES]
    for key, value in values_json(values).items():
        yield [*kinds, *cells, key, str(value)]


def _kind(names: dict[str, str | None], kind: str) -> str:
    if kind not in names:
        return "absent"
    return "default" if names[kind] is DEFAULT_NAME else "name"


_LONGEST_SIMPLE_KEY: Final = 500
"""A longer key is marked with ``?``: a simple key has at most 1,024 characters, escapes included.
Source: YAML 1.1, 7.4.2 of YAML 1.2."""


def yaml_rows(
    entries: Iterable[Entry], notes: Notes = NO_NOTES, owned: Owned = NO_OWNERS
) -> Iterator[bytes]:
    """Yield the document in UTF-8, entity by entity; owners and what is for a time are comments."""
    yield f"apiVersion: {API_VERSION}\n".encode()
    heading, left = "quotas:\n", dict(notes)
    for at, (entity, values) in enumerate(entries):
        numbers = _mapping((key, _number(value)) for key, value in values_json(values).items())
        texts = chain(_comments(left.pop(entity, {})), _owners(owned.get(at, {})))
        comments = "".join(f"    # {text}\n" for text in texts)
        names = _names(entity)
        yield f"{heading}  - entity: {names}\n    values: {numbers}\n{comments}".encode()
        heading = ""
    if heading:
        yield b"quotas: []\n"
    for entity, held in left.items():
        for text in _comments(held):
            yield f"# {_names(entity)} {text}, then not set\n".encode()


def _comments(held: Mapping[str, TemporaryValue]) -> Iterator[str]:
    return (note_text(_scalar(key), value) for key, value in held.items())


def _owners(owners: Mapping[str, str]) -> Iterator[str]:
    return (f"{_scalar(key)} applied by {owner}" for key, owner in owners.items())


def _names(entity: ClientQuotaEntity) -> str:
    return _mapping((kind, _scalar(name)) for kind, name in entity_json(entity).items())


def _mapping(members: Iterable[tuple[str, str]]) -> str:
    return f"{{{', '.join(f'{_key(name)}: {text}' for name, text in members)}}}"


def _key(name: str) -> str:
    text = _scalar(name)
    return f"? {text} " if len(text) > _LONGEST_SIMPLE_KEY else text


def _scalar(text: str | None) -> str:
    return "null" if text is None else yaml_text(text)


def _number(value: JsonNumber) -> str:
    if isinstance(value, str):
        return f'"{value}"'
    return str(value) if isinstance(value, int) else yaml_float(value)


def quotas_etag(media_type: Format, cluster_id: str, texts: Iterable[bytes], page: str = "") -> str:
    """Return the strong entity tag of an answer of ``GET /quotas``.

    ``as_of`` is left out: an answer that says the same a minute later has the same tag.

    Args:
        media_type: The format; each has its own tag.
        cluster_id: Of the answer.
        texts: Its entries in JSON, in its order, whatever the format.
        page: Which section of the whole answer this is, such as page size and position.
    """
    digest = hashlib.blake2b(json_bytes([media_type.value, cluster_id, page]), digest_size=16)
    for text in texts:
        digest.update(text)
    return f'"{digest.hexdigest()}"'


def etag_with(etag: str, more: bytes) -> str:
    """Return the entity tag of an answer that has more beside its entries; the same without."""
    if not more:
        return etag
    return f'"{hashlib.blake2b(etag.encode() + more, digest_size=16).hexdigest()}"'
