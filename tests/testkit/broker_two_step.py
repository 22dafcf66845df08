"""A plain port of how a broker finds a limit, in its own two steps: the judge of ``resolve``.

First the bucket's tags are chosen from which rules exist, then the limit is looked up from the
tags alone. Ported line for line and without any of the service's own tables.

Source: ``ClientQuotaManager.DefaultQuotaCallback`` of Kafka 4.3.1. The user tag is left unencoded.
"""

from collections.abc import Mapping
from enum import Enum
from typing import Final

from app.domain.entities import ClientQuotaEntity


class Entity(Enum):
    """What stands in the place of a name in a rule."""

    DEFAULT = "default"
    ABSENT = "absent"


DEFAULT: Final = Entity.DEFAULT
ABSENT: Final = Entity.ABSENT

Name = str | Entity
Slots = tuple[Name, Name]
Rules = Mapping[Slots, float]
Tags = tuple[str, str]

CLIENT_ID_QUOTA_ENABLED: Final = 1
USER_QUOTA_ENABLED: Final = 2
USER_CLIENT_ID_QUOTA_ENABLED: Final = 4


def entity_of(slots: Slots) -> ClientQuotaEntity:
    """Return the entity for a rule's (user, client-id)."""
    names = dict(zip(("user", "client-id"), slots, strict=True))
    return ClientQuotaEntity.of(
        {
            kind: None if name is DEFAULT else str(name)
            for kind, name in names.items()
            if name is not ABSENT
        }
    )


class DefaultQuotaCallback:
    """The rules of one quota type, keyed by (user, client-id)."""

    def __init__(self, rules: Rules) -> None:
        self.overridden_quotas = dict(rules)
        self.quota_types_enabled = 0
        for user, client_id in rules:
            if user is not ABSENT and client_id is not ABSENT:
                self.quota_types_enabled |= USER_CLIENT_ID_QUOTA_ENABLED
            elif user is not ABSENT:
                self.quota_types_enabled |= USER_QUOTA_ENABLED
            else:
                self.quota_types_enabled |= CLIENT_ID_QUOTA_ENABLED

    def quota_metric_tags(self, user: str, client_id: str) -> Tags:
        """Return the (user, client-id) tags of the caller's bucket."""
        enabled = self.quota_types_enabled
        if enabled in (0, CLIENT_ID_QUOTA_ENABLED):
            return "", client_id
        if enabled == USER_QUOTA_ENABLED:
            return user, ""
        if enabled == USER_CLIENT_ID_QUOTA_ENABLED:
            return user, client_id
        return self._tags_among_several_kinds(user, client_id)

    def _tags_among_several_kinds(self, user: str, client_id: str) -> Tags:
        quotas = self.overridden_quotas
        if (user, client_id) in quotas or (user, DEFAULT) in quotas:
            return user, client_id
        if (user, ABSENT) in quotas:
            return user, ""
        if (DEFAULT, client_id) in quotas or (DEFAULT, DEFAULT) in quotas:
            return user, client_id
        if (DEFAULT, ABSENT) in quotas:
            return user, ""
        return "", client_id

    def quota_limit(self, tags: Tags) -> float | None:
        """Return the limit of a bucket; null is unlimited."""
        user, client_id = tags
        if user and client_id:
            return self._first(
                (user, client_id), (user, DEFAULT), (DEFAULT, client_id), (DEFAULT, DEFAULT)
            )
        if user:
            return self._first((user, ABSENT), (DEFAULT, ABSENT))
        if client_id:
            return self._first((ABSENT, client_id), (ABSENT, DEFAULT))
        return None

    def _first(self, *entities: Slots) -> float | None:
        found = (self.overridden_quotas[one] for one in entities if one in self.overridden_quotas)
        return next(found, None)
