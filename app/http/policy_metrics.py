"""What the policy decides, in numbers."""

from prometheus_client import CollectorRegistry, Counter, Gauge


class PrometheusPolicyMetrics:
    """Implements ``PolicyMetrics``; all zero where there is no policy."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._decisions = Counter(
            "policy_decisions",
            "Alterations that the policy judged, after the ACLs let them pass.",
            ["result"],
            registry=registry,
        )
        self._reads = Counter(
            "policy_reads",
            "Times the policy file was read: used, or refused (what was in force stays so).",
            ["result"],
            registry=registry,
        )
        self._rules = Gauge(
            "policy_rules",
            "Rules of the policy in force.",
            registry=registry,
            multiprocess_mode="liveall",
        )
        self._outdated = Gauge(
            "policy_outdated",
            "Whether the policy file that was last read could not be used, so that an older one is "
            "in force: 0 or 1.",
            registry=registry,
            multiprocess_mode="liveall",
        )

    def policy_decided(self, *, allowed: bool) -> None:
        """Note a decision."""
        self._decisions.labels("allowed" if allowed else "refused").inc()

    def policy_read(self, *, usable: bool, rules: int) -> None:
        """Note that the file was read, and how many rules are in force since."""
        self._reads.labels("used" if usable else "refused").inc()
        self._rules.set(rules)
        self._outdated.set(not usable)
