"""What was told of brokers and of Postgres, for a test to look at."""

from collections import Counter

from app.service.dependency_metrics import KafkaResult


class CountedDependencies:
    """Counts each call by its words; ``seconds`` are all that were told."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.seconds: list[float] = []

    def kafka_request_took(self, api: str, result: KafkaResult, seconds: float) -> None:
        """Count the request."""
        self.counts[f"{api} {result.value}"] += 1
        self.seconds.append(seconds)

    def kafka_error_came(self, api: str, code: str) -> None:
        """Count the error."""
        self.counts[f"{api} {code}"] += 1

    def pool_wait_took(self, pool: str, seconds: float) -> None:
        """Count the wait."""
        self.counts[pool] += 1
        self.seconds.append(seconds)
