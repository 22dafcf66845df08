"""The rules for naming an entity in an alteration."""

from collections.abc import Iterator

from app.domain.addresses import canonical_ip
from app.domain.alterations import ClientQuotaAlteration, Quotas
from app.domain.entities import DEFAULT_NAME, ENTITY_TYPES, ClientQuotaEntity, EntityType
from app.domain.errors import Violation

MAX_NAME_BYTES = 512
"""The longest name accepted, in bytes of UTF-8; the wire would take 32,767."""


def canonical_entity(alteration: ClientQuotaAlteration, stored: Quotas) -> ClientQuotaEntity:
    """Return the entity as it is sent: an address in its canonical text.

    An alteration that only removes keeps a spelling that the broker lists, so nothing that other
    tools stored is stuck.
    """
    entity = alteration.entity
    if alteration.only_removes and entity in stored:
        return entity
    names = entity.as_dict()
    name = names.get(EntityType.IP)
    canonical = canonical_ip(name) if name else None
    if canonical is None or canonical == name:
        return entity
    return ClientQuotaEntity.of({**names, EntityType.IP: canonical})


def entity_violations(entity: ClientQuotaEntity, pointer: str, index: int) -> Iterator[Violation]:
    """Yield every broken rule of an entity.

    Source: ``ClientQuotaControlManager`` (kafka_error set); the rest is this service's.
    """
    if not entity.entries:
        yield _kafka(
            pointer,
            "empty-entity",
            "The entity is empty; name a user, a client-id or an ip.",
            index,
        )
    for kind, name in entity.entries:
        yield from _name_violations(kind, name, f"{pointer}/{_escaped(kind)}", index)
    if EntityType.IP in entity.types and entity.types & {EntityType.USER, EntityType.CLIENT_ID}:
        detail = "ip cannot be combined with user or client-id."
        yield _kafka(pointer, "invalid-entity-combination", detail, index)


def _name_violations(kind: str, name: str | None, pointer: str, index: int) -> Iterator[Violation]:
    if kind not in ENTITY_TYPES:
        detail = f"Unknown entity type {kind!r}; a broker knows user, client-id and ip."
        yield _kafka(pointer, "unknown-entity-type", detail, index)
    elif name is DEFAULT_NAME:
        return
    elif not name:
        detail = f"An empty {kind} is not supported; null names the default entity."
        yield _kafka(pointer, "empty-name", detail, index)
    elif kind == EntityType.IP:
        if canonical_ip(name) is None:
            yield _kafka(pointer, "not-an-ip-address", _IP_DETAIL, index)
    else:
        yield from _text_violations(name, pointer, index)


_IP_DETAIL = (
    "An ip is a literal IPv4 or IPv6 address; host names would be looked up inside the controller."
)


def _text_violations(name: str, pointer: str, index: int) -> Iterator[Violation]:
    if "\0" in name:
        yield Violation(pointer, "nul-in-name", "A name cannot contain U+0000.", index=index)
    try:
        size = len(name.encode())
    except UnicodeEncodeError:
        detail = "A name must be Unicode text; this one holds half of a surrogate pair."
        yield Violation(pointer, "lone-surrogate", detail, index=index)
        return
    if size > MAX_NAME_BYTES:
        detail = f"The name has {size} bytes of UTF-8; at most {MAX_NAME_BYTES} are accepted."
        yield Violation(pointer, "name-too-long", detail, index=index)


def _kafka(pointer: str, code: str, detail: str, index: int) -> Violation:
    return Violation(pointer, code, detail, "INVALID_REQUEST", index)


def _escaped(token: str) -> str:
    """Escape a member name for a JSON pointer. Source: RFC 6901."""
    return token.replace("~", "~0").replace("/", "~1")
