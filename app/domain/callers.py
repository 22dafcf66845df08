"""Who asks."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Caller:
    """An authenticated caller.

    Attributes:
        principal: As Kafka prints it: ``User:alice``.
        host: The numeric address of the TCP peer, in Java's text form (IPv6 unabbreviated).
        authentication: The method, for the audit log; no secret.
    """

    principal: str
    host: str
    authentication: str
