"""What the doctor says: one sentence for each thing it looked at."""

from dataclasses import asdict, dataclass
from enum import StrEnum


class Status(StrEnum):
    """How a check ended."""

    OK = "ok"
    WARN = "warn"
    FAIL = "fail"


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that was looked at.

    Attributes:
        check: Its name.
        status: ``warn`` makes results doubtful or incomplete, ``fail`` wrong or impossible.
        detail: What was found, and what to do about it.
    """

    check: str
    status: Status
    detail: str

    def as_json(self) -> dict[str, str]:
        """Return it as the report shows it."""
        return {name: str(value) for name, value in asdict(self).items()}


def ok(check: str, detail: str) -> Check:
    """Return a check without a complaint."""
    return Check(check, Status.OK, detail)


def warn(check: str, detail: str) -> Check:
    """Return a check that makes results doubtful or incomplete."""
    return Check(check, Status.WARN, detail)


def fail(check: str, detail: str) -> Check:
    """Return a check that makes results wrong or impossible."""
    return Check(check, Status.FAIL, detail)
