"""How long Postgres and the brokers may take before a request is given up."""

from typing import Annotated

from pydantic import Field

from app.service.patience import Patience
from app.settings.values import Fields

TimeoutMs = Annotated[int, Field(ge=10, le=60_000)]


class Timeouts(Fields):
    """How long Postgres and the brokers may take before a request is given up."""

    database_connect_timeout_ms: TimeoutMs = Field(
        1000, description="How long a connection to Postgres may take, in ms."
    )
    database_timeout_ms: TimeoutMs = Field(
        1400,
        description="How long Postgres may take for a transaction before what needs it is "
        "refused, in ms; an outcome has twice as long, a report at least 30 s.",
    )
    kafka_request_timeout_ms: TimeoutMs = Field(
        5000,
        description="How long a broker may take to answer a read, in ms; a barrier and a check of "
        "readiness have 40 % of it, an alteration at least 15 s.",
    )

    @property
    def patience(self) -> Patience:
        """All the time-outs that follow from these."""
        return Patience(
            database_connect_s=self.database_connect_timeout_ms / 1000,
            database_answer_s=self.database_timeout_ms / 1000,
            broker_answer_s=self.kafka_request_timeout_ms / 1000,
        )
