"""What is described and altered: entities of a user and a client-id, two keys each or fewer."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any
from urllib.parse import urlencode

from app.domain.alterations import ClientQuotaAlteration, Op
from app.domain.entities import ClientQuotaEntity, ClientQuotaFilter, ClientQuotaFilterComponent

KEYS = ("producer_byte_rate", "consumer_byte_rate")


@dataclass(frozen=True)
class Entities:
    """The entities of one arm: arms share none, so that each one's changes are its own."""

    arm: str
    count: int = 1
    keys: tuple[str, ...] = KEYS

    def names(self, index: int) -> Mapping[str, str]:
        """Return the entity as in JSON."""
        return {"user": f"{self.arm}-user-{index:05}", "client-id": f"{self.arm}-client-{index:05}"}

    def exact(self, index: int) -> ClientQuotaFilter:
        """Return the strict filter of one entity."""
        return ClientQuotaFilter(
            tuple(
                ClientQuotaFilterComponent.of_entity(kind, name)
                for kind, name in self.names(index).items()
            ),
            strict=True,
        )

    def exact_query(self, index: int, *, max_age_ms: int = 0) -> str:
        """Return the same filter for ``GET /quotas``."""
        filters = [("filter", f"{kind}={name}") for kind, name in self.names(index).items()]
        options = [("strict", "true"), ("max_age_ms", str(max_age_ms))]
        return urlencode([*filters, *options], safe="=")

    def alterations(self, value: int) -> tuple[ClientQuotaAlteration, ...]:
        """Return the alterations that set each key of each entity."""
        return tuple(self.alteration(index, value) for index in range(self.count))

    def alteration(self, index: int, value: int) -> ClientQuotaAlteration:
        """Return the one that sets each key of one entity."""
        ops = tuple(Op(key, Decimal(value)) for key in self.keys)
        return ClientQuotaAlteration(ClientQuotaEntity.of(self.names(index)), ops)

    def body(self, value: int, **options: Any) -> bytes:
        """Return the same alterations for ``POST /quotas/alterations``."""
        return self._body(range(self.count), value, options)

    def body_of(self, index: int, value: int, **options: Any) -> bytes:
        """Return the alteration of one entity for ``POST /quotas/alterations``."""
        return self._body((index,), value, options)

    def _body(self, indexes: Iterable[int], value: int, options: Mapping[str, Any]) -> bytes:
        ops = [{"key": key, "value": value} for key in self.keys]
        alterations = [{"entity": self.names(index), "ops": ops} for index in indexes]
        return json.dumps({"alterations": alterations, **options}).encode()

    def kafka_configs(self, value: int) -> list[str]:
        """Return the same alteration of the first entity for ``kafka-configs``."""
        names = self.names(0)
        entity = ["--entity-type", "users", "--entity-name", names["user"]]
        entity += ["--entity-type", "clients", "--entity-name", names["client-id"]]
        return [*entity, "--alter", "--add-config", ",".join(f"{key}={value}" for key in self.keys)]
