"""Metrics in registries of their own, which a test can read."""

from collections import Counter

from prometheus_client.utils import floatToGoString

from app.metrics import AlterationMetrics, BrokerMetrics, DatabaseMetrics, Instruments


class _Counted:
    """What was counted."""

    make: Instruments

    @property
    def counts(self) -> Counter[str]:
        """How often, by metric and values of its labels, such as ``quota_drift outside``."""
        return Counter(
            {
                " ".join([metric.name, *sample.labels.values()]): int(sample.value)
                for metric in self.make.registry.collect()
                for sample in metric.samples
                if sample.value and sample.name.endswith(("_total", "_count"))
            }
        )


class CountedMetrics(AlterationMetrics, _Counted):
    """What becomes of alterations."""

    def __init__(self) -> None:
        self.make = Instruments()
        super().__init__(self.make)


class _Timed(_Counted):
    def within(self, metric: str, seconds: float) -> int:
        """Return how many of the durations of a metric were so short, which is a bucket's bound."""
        bound = floatToGoString(seconds)
        return sum(
            int(sample.value)
            for each in self.make.registry.collect()
            for sample in each.samples
            if sample.name == f"{metric}_bucket" and sample.labels["le"] == bound
        )


class CountedBrokers(BrokerMetrics, _Timed):
    """What goes to brokers."""

    def __init__(self) -> None:
        self.make = Instruments()
        super().__init__(self.make)


class CountedDatabase(DatabaseMetrics, _Timed):
    """What goes to Postgres."""

    def __init__(self) -> None:
        self.make = Instruments()
        super().__init__(self.make)
