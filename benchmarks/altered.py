"""What the service answers to an alteration."""

import json

from benchmarks.errors import BenchmarkError
from benchmarks.http_connection import Answer

_UNAVAILABLE = 503


def raise_unless_applied(answer: Answer) -> None:
    """Make sure that everything was applied.

    Raises:
        BenchmarkError: It was not.
    """
    document = answer.json()
    if document["outcome"] != "applied":
        raise BenchmarkError(f"an alteration was not applied: {document}")


def was_not_sent(answer: Answer) -> bool:
    """Tell whether nothing was sent, so that the request may be repeated as it is."""
    return answer.status == _UNAVAILABLE and bool(json.loads(answer.body)["retry"] == "safe")
