"""Entity tags. Source: RFC 9110 8.8.3 and 13.1.2."""

import hashlib
import re
from collections.abc import Iterable, Sequence
from typing import Final

from app.domain.alterations import Values
from app.domain.entities import ClientQuotaEntity
from app.http.encoding import entity_json, json_bytes, values_json
from app.http.quotas.formats import Format

_ENTITY_TAG: Final = re.compile(r'(?:W/)?("[\x21\x23-\x7e\x80-\xff]*")')
_LIST: Final = re.compile(
    rf"[\s,]*{_ENTITY_TAG.pattern}(?:[ \t]*,[\s,]*{_ENTITY_TAG.pattern})*[\s,]*"
)


def quotas_etag(
    media_type: Format,
    cluster_id: str,
    entries: Iterable[tuple[ClientQuotaEntity, Values]],
    page: str = "",
) -> str:
    """Return the strong entity tag of an answer of ``GET /quotas``.

    ``as_of`` is left out: an answer that says the same a minute later has the same tag.

    Args:
        media_type: The format; each has its own tag.
        cluster_id: Of the answer.
        entries: Of the answer, in its order.
        page: Which part of the whole answer this is, such as page size and position.
    """
    parts = (json_bytes([entity_json(entity), values_json(values)]) for entity, values in entries)
    return _etag([media_type.value, cluster_id, page], parts)


def text_etag(media_type: Format, cluster_id: str, text: Iterable[bytes]) -> str:
    """Return the strong entity tag of a whole answer whose entities are written already.

    Args:
        media_type: The format.
        cluster_id: Of the answer.
        text: The entities; where it is cut does not matter.
    """
    return _etag([media_type.value, cluster_id], text)


def _etag(of: Sequence[str], parts: Iterable[bytes]) -> str:
    digest = hashlib.blake2b(json_bytes(of), digest_size=16)
    for part in parts:
        digest.update(part)
    return f'"{digest.hexdigest()}"'


def if_none_match(header: str | None, etag: str) -> bool:
    """Tell whether ``If-None-Match`` names the tag, so that the answer is 304.

    Weak comparison; ``*`` names every tag. A header that is no list of tags names none.
    """
    if header is None:
        return False
    if header.strip() == "*":
        return True
    return bool(_LIST.fullmatch(header)) and etag in _ENTITY_TAG.findall(header)
