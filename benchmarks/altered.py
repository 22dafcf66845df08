"""What the service answers to an alteration."""

from benchmarks.errors import BenchmarkError
from benchmarks.http_connection import Answer


def raise_unless_applied(answer: Answer) -> None:
    """Make sure that everything was applied.

    Raises:
        BenchmarkError: It was not.
    """
    document = answer.json()
    if document["outcome"] != "applied":
        raise BenchmarkError(f"an alteration was not applied: {document}")
