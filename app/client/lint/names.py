"""Rules for names that nobody has, and for names that were not thought of."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from app.client.entities import show_entity, show_name
from app.client.lint.finding import Finding, Severity, alter_line
from app.client.lint.levels import level_of
from app.client.values import show_value
from app.domain.addresses import canonical_ip
from app.domain.quota_keys import LARGEST_FRACTIONAL, LONG_MAX, QUOTA_KEY_RULES
from app.domain.resolution_levels import Slot

Quota = Mapping[str, Any]

_PREFIX: Final = "User:"
_ANONYMOUS: Final = "ANONYMOUS"


def prefixed(quotas: Iterable[Quota]) -> Iterator[Finding]:
    """Yield users whose name begins with ``User:``, which a quota's user does not."""
    for quota in quotas:
        name = quota["entity"].get("user")
        if name is not None and name.startswith(_PREFIX):
            entity = {**quota["entity"], "user": name.removeprefix(_PREFIX)}
            message = "a quota's user has no type before its name, so this is nobody"
            fixes = (
                alter_line(entity, quota["values"]),
                alter_line(quota["entity"], delete=list(quota["values"])),
            )
            yield Finding(
                "user-prefix", Severity.WARNING, quota["entity"], None, message,
                fixes if entity["user"] else fixes[1:],
            )  # fmt: skip


def without_credentials(quotas: Iterable[Quota], known: frozenset[str]) -> Iterator[Finding]:
    """Yield users who have no SCRAM credentials, where there are users who have.

    Names of certificates (with ``=``) log in in another way.
    """
    for quota in quotas:
        name = quota["entity"].get("user")
        other = name is None or name in known or "=" in name or name.startswith(_PREFIX)
        if known and not other and name != _ANONYMOUS:
            message = f"{show_name(name)} has no SCRAM credentials; unless it logs in otherwise"
            message += ", nobody can be it"
            fix = alter_line(quota["entity"], delete=list(quota["values"]))
            yield Finding("no-credentials", Severity.HINT, quota["entity"], None, message, (fix,))


def odd_addresses(quotas: Iterable[Quota]) -> Iterator[Finding]:
    """Yield addresses that are host names, or are not written as this service writes them."""
    for quota in quotas:
        name = quota["entity"].get("ip")
        if name is None or canonical_ip(name) == name:
            continue
        canonical = canonical_ip(name)
        if canonical is None:
            message = "not a literal address: each node looked it up for itself, once"
        else:
            message = f"another spelling of {canonical}; one of several wins"
        remove = alter_line(quota["entity"], delete=list(quota["values"]))
        again = [] if canonical is None else [alter_line({"ip": canonical}, quota["values"])]
        yield Finding(
            "odd-address", Severity.WARNING, quota["entity"], None, message, (remove, *again)
        )


def not_numbers(quotas: Iterable[Quota]) -> Iterator[Finding]:
    """Yield values that are no numbers, which limit nothing that can be told."""
    for quota in quotas:
        for key, value in quota["values"].items():
            if isinstance(value, str):
                message = f"{show_value(value)} is stored, which is no limit"
                fix = alter_line(quota["entity"], delete=[key])
                yield Finding(
                    "not-a-number", Severity.WARNING, quota["entity"], key, message, (fix,)
                )


def catching_brokers(quotas: Sequence[Quota], brokers: Sequence[str]) -> Iterator[Finding]:
    """Yield defaults that would limit users of the brokers' own, who have no rule against it.

    What a broker asks of another as a broker is exempt; what runs in it under the same user, such
    as a reporter of metrics, is not.
    """
    own = {
        (quota["entity"]["user"], key)
        for quota in quotas
        if list(quota["entity"]) == ["user"]
        for key in quota["values"]
    }
    for quota in quotas:
        row = level_of(quota["entity"])
        if row is None or row.user is Slot.NAMED or row.client_id is Slot.NAMED:
            continue
        for key in quota["values"]:
            for broker in brokers:
                if key in QUOTA_KEY_RULES and (broker, key) not in own:
                    yield _caught(quota, key, broker)


def _caught(quota: Quota, key: str, broker: str) -> Finding:
    highest = min(QUOTA_KEY_RULES[key].maximum, LONG_MAX)
    unlimited = LONG_MAX if highest > LARGEST_FRACTIONAL else int(LARGEST_FRACTIONAL)
    fix = alter_line({"user": broker}, {key: unlimited})
    message = f"limits the brokers' own user {show_name(broker)}, as {show_entity(quota['entity'])}"
    return Finding(
        "catches-brokers", Severity.WARNING, quota["entity"], key, f"{message} is for all", (fix,)
    )
