"""How long callers are waited for, and how much they may hold."""

from dataclasses import dataclass
from enum import StrEnum


class Stage(StrEnum):
    """What a caller is waited for, as the metric ``receive_deadline_closed_total`` names it."""

    IDLE = "idle"
    HEADERS = "headers"
    BODY = "body"
    ANSWER = "answer"


@dataclass(frozen=True, slots=True)
class ReceiveLimits:
    """How long callers are waited for, in seconds, and how much they may hold.

    Attributes:
        idle_s: For the first byte of a request.
        headers_s: From that to the end of the headers.
        body_s: From that to the end of the body.
        answer_s: For reading some of an answer that waits to be sent.
        header_bytes: So many bytes of headers, or of what surrounds a body, are taken in.
    """

    idle_s: float = 10.0
    headers_s: float = 10.0
    body_s: float = 30.0
    answer_s: float = 60.0
    header_bytes: int = 64 * 1024

    def of(self, stage: Stage) -> float:
        """Return the deadline of a stage, in seconds."""
        return {
            Stage.IDLE: self.idle_s,
            Stage.HEADERS: self.headers_s,
            Stage.BODY: self.body_s,
            Stage.ANSWER: self.answer_s,
        }[stage]
