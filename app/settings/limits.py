"""How much a caller may have, and how long a stop may take."""

from typing import Annotated

from pydantic import Field

from app.settings.values import Fields, Rate


class Appetite(Fields):
    """How much a caller may have, and how long a stop may take."""

    shutdown_grace_s: Annotated[float, Field(ge=0, le=300)] = Field(
        20.0, description="How long a stop waits for running alterations, in seconds."
    )

    shutdown_delay_s: Annotated[float, Field(ge=0, le=60)] = Field(
        5.0,
        description="How long `/readyz` says 503 before a stop begins, in seconds; "
        "none in development.",
    )

    reads_per_s: Rate = Field(
        20_000.0, description="Reads of one principal a second; twice as many at once."
    )
    alterations_per_s: Rate = Field(
        5_000.0, description="Alterations of one principal a second; twice as many at once."
    )
    requests_at_once: Annotated[int, Field(ge=0)] = Field(
        256, description="Requests of one principal that are worked on at a time."
    )
    authentication_failures_per_s: Rate = Field(
        500.0,
        description="Bad credentials from one address a second; twenty times as many at once.",
    )
    max_connections: Annotated[int, Field(ge=1)] = Field(
        1000, description="Connections at a time; one more is answered 503."
    )
