"""Output of ``kafka-configs --describe`` for users, clients, both, and ips.

Lines, since 2.6 and before it::

    Quota configs for user-principal 'alice', client-id 'app' are producer_byte_rate=1000.0, …
    Quota configs for the default client-id are request_percentage=50.0
    SCRAM credential configs for user-principal 'alice' are SCRAM-SHA-512=iterations=4096
    Configs for default user-principal are producer_byte_rate=1024,consumer_byte_rate=2048

Source: ``ConfigCommand.describeQuotaConfigs`` and, of brokers with ZooKeeper, ``describeConfig``.
"""

import re
from typing import Final

from app.client.imports.collected import Collected
from app.domain.quota_keys import QUOTA_KEY_RULES

_QUOTAS: Final = re.compile(r"(?:Quota configs|Configs) for (.+) are ?(.*)")
_CREDENTIALS: Final = re.compile(r"SCRAM credential configs for user-principal '(.*)' are .*")
_ENTITY: Final = re.compile(
    r"(?:(?P<any_user>(?:the )?default user-principal)|user-principal '(?P<user>.*?)')?"
    r"(?:, )?"
    r"(?:(?P<any_client>(?:the )?default client-id)|client-id '(?P<client>.*)')?"
    r"(?:(?P<any_ip>(?:the )?default ip)|ip '(?P<ip>.*)')?"
)
_VALUE: Final = re.compile(r"(?:^|,) ?([a-z_]+)=([^,= ]+)(?=,|$)")
_SECRET: Final = re.compile(r"SCRAM-SHA-[0-9]+=")


def recognised(text: str) -> bool:
    """Tell whether a text is such output."""
    return any(_QUOTAS.fullmatch(line) or _CREDENTIALS.fullmatch(line) for line in _lines(text))


def read(text: str, into: Collected) -> None:
    """Read the lines; credentials are noted by the user's name alone."""
    for number, line in enumerate(_lines(text), 1):
        quotas, credentials = _QUOTAS.fullmatch(line), _CREDENTIALS.fullmatch(line)
        if credentials is not None:
            into.lose(number, f"the SCRAM credentials of {credentials[1]} are no quota")
        elif quotas is not None:
            _read_quotas(quotas[1], quotas[2], number, into)
        elif line.strip():
            into.lose(number, "this line tells of no quota")


def _lines(text: str) -> list[str]:
    return [line.rstrip("\r") for line in text.split("\n")]


def _read_quotas(entity_text: str, values_text: str, line: int, into: Collected) -> None:
    match = _ENTITY.fullmatch(entity_text)
    entity = {} if match is None else _entity(match)
    if not entity:
        into.lose(line, f"{entity_text} is no entity of quotas")
        return
    secret = _SECRET.search(values_text) is not None
    if secret:
        into.lose(line, f"the SCRAM credentials of {entity.get('user')} are no quota")
    for key, value in _VALUE.findall(values_text):
        # Beside credentials what is no quota may be a key of theirs: it is not even shown.
        if key in QUOTA_KEY_RULES or not secret:
            into.add(entity, key, value, line)


def _entity(match: re.Match[str]) -> dict[str, str | None]:
    entity: dict[str, str | None] = {}
    for kind, default, name in (
        ("user", "any_user", "user"),
        ("client-id", "any_client", "client"),
        ("ip", "any_ip", "ip"),
    ):
        if match[default] is not None:
            entity[kind] = None
        elif match[name] is not None:
            entity[kind] = match[name]
    return entity
