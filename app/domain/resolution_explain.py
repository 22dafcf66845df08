"""The levels that were tried for an identity, for a reader who asks why."""

from collections.abc import Mapping, Sequence
from typing import Final

from app.domain.entities import DEFAULT_NAME, ClientQuotaEntity, EntityType
from app.domain.resolution_levels import IP_PRECEDENCE, PRECEDENCE, PrecedenceLevel, Slot
from app.domain.resolution_notes import HIDDEN_CLIENT_RULES
from app.domain.resolution_values import ConfiguredQuota, LevelTried

_WITHOUT_USER: Final[Mapping[Slot, str]] = {
    Slot.NAMED: "An empty user name cannot be configured.",
    Slot.DEFAULT: "A rule for users never limits a caller whose user name is empty.",
}
_WITHOUT_CLIENT_ID: Final[Mapping[Slot, str]] = {
    Slot.NAMED: "An empty client-id cannot be configured.",
    Slot.DEFAULT: "Rules for the default client-id do not cover an empty client-id.",
}


def why_not(row: PrecedenceLevel, user: str, client_id: str) -> str | None:
    """Say why a level can never limit a caller with these names; null where it can."""
    no_user = None if user else _WITHOUT_USER.get(row.user)
    return no_user or (None if client_id else _WITHOUT_CLIENT_ID.get(row.client_id))


def client_levels(
    having: Sequence[ConfiguredQuota], user: str, client_id: str, *, hidden: bool
) -> tuple[LevelTried, ...]:
    """Return the eight levels for one key.

    Args:
        having: What is stored for the key at any level.
        user: The user's name; empty for none.
        client_id: The client-id; empty for none.
        hidden: Whether the default user's value hides the client-id rules (empty user name).
    """
    stored = {quota.level: quota for quota in having}
    tried = []
    for row in PRECEDENCE:
        quota = stored.get(row.level)
        entity = quota.entity if quota else _client_entity(row, user, client_id)
        reason = why_not(row, user, client_id) or (HIDDEN_CLIENT_RULES if hidden else None)
        value = quota.value if quota else None
        tried.append(LevelTried(entity, row.level, row.source, value, reason is None, reason))
    return tuple(tried)


def ip_levels(having: Sequence[ConfiguredQuota], address: str) -> tuple[LevelTried, ...]:
    """Return the two levels for an address."""
    stored = {quota.level: quota for quota in having}
    tried = []
    for row in IP_PRECEDENCE:
        quota = stored.get(row.level)
        name = address if row.ip is Slot.NAMED else DEFAULT_NAME
        entity = quota.entity if quota else ClientQuotaEntity.of({EntityType.IP: name})
        value = quota.value if quota else None
        tried.append(LevelTried(entity, row.level, row.source, value, applies=True, reason=None))
    return tuple(tried)


def _client_entity(row: PrecedenceLevel, user: str, client_id: str) -> ClientQuotaEntity:
    slots = (
        (EntityType.USER, row.user, user),
        (EntityType.CLIENT_ID, row.client_id, client_id),
    )
    return ClientQuotaEntity.of(
        {
            kind: name if slot is Slot.NAMED else DEFAULT_NAME
            for kind, slot, name in slots
            if slot is not Slot.ABSENT
        }
    )
