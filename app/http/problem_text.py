"""What is said about a problem."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ProblemText:
    """What a code means and what to do about it.

    Attributes:
        title: A short name for it, the same each time.
        meaning: What has happened, and what has not.
        action: What the caller does.
        operator: What those do who run the service; empty where it is the caller's to mend.
    """

    title: str
    meaning: str
    action: str
    operator: str = ""
