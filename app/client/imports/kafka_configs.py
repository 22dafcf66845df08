"""Output of ``kafka-configs --describe``, as it is copied from terminals, mails and logs."""

import re
from collections.abc import Iterator
from typing import Final, NamedTuple

from app.client.imports.collection import Collection
from app.domain.entities import show_entity
from app.domain.quota_keys import QUOTA_KEY_RULES

_COLOUR: Final = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
_TIME: Final = r"\d{4}-\d\d-\d\d[T ][\d:.,]+(?:Z|[+-]\d\d:?\d\d)?\s"
_PROMPT: Final = re.compile(rf"(?:[\w.-]+\s*\||{_TIME}|[\w./-]+:(?:\d+:)?)?[\s>$|]*")
"""What stands before a line in a terminal, a quoted mail, the log of a container or grep."""

_START: Final = re.compile(
    r"(?:Quota configs|Configs|Dynamic configs|SCRAM credential configs) for "
)
_QUOTAS: Final = re.compile(r"(?:Quota configs|Configs) for (.+) are ?(.*)")
_CREDENTIALS: Final = re.compile(r"SCRAM credential configs for user-principal '(.*)' are .*")
_ENTITY: Final = re.compile(
    r"(?:(?P<any_user>(?:the )?default user-principal)|user-principal '(?P<user>.*?)')?"
    r"(?:, )?"
    r"(?:(?P<any_client>(?:the )?default client-id)|client-id '(?P<client>.*)')?"
    r"(?:(?P<any_ip>(?:the )?default ip)|ip '(?P<ip>.*)')?"
)
_OPEN_NAME: Final = re.compile(r".*(?:user-principal|client-id|ip) '[^']*", re.DOTALL)
"""Of a line that ends within a name."""

_NUMBER: Final = r"\d+(?:\.\d*)?(?:E-?\d*)?"
_NUMBERS: Final = re.compile(rf"[a-z_]+={_NUMBER}(?:, ?[a-z_]+={_NUMBER})*(?:, ?)?")
_WHOLE: Final = re.compile(r"[a-z_]+=\d+\.\d+(?:E-?\d+)?")
"""A value as Kafka prints it since 2.6: a float64, which has a point."""

_VALUE: Final = re.compile(r"([A-Za-z_]+)=([^,= ]+)")
_VALUES: Final = re.compile(r"(?:[a-z_]+=[^,= ]*(?:, ?|$))+")
_SECRET: Final = re.compile(r"SCRAM-SHA-[0-9]+=")
_QUOTA: Final = re.compile(rf"({'|'.join(QUOTA_KEY_RULES)})\s*=")


class _Line(NamedTuple):
    """A line, or some that were wrapped; where they meet within a name or a number, it is cut."""

    number: int
    text: str
    is_cut: bool = False


def is_kafka_configs(text: str) -> bool:
    """Return whether a text has a line of ``kafka-configs --describe``, of any entity type."""
    lines = (line.text for line in _lines(text))
    return any(_QUOTAS.fullmatch(line) or _CREDENTIALS.fullmatch(line) for line in lines)


def read_kafka_configs(text: str, into: Collection) -> None:
    """Read the lines; credentials are counted, and never printed.

    Lines, since 2.6 and before it::

        Quota configs for user-principal 'alice', client-id 'app' are producer_byte_rate=1000.0, …
        Quota configs for the default client-id are request_percentage=50.0
        SCRAM credential configs for user-principal 'alice' are SCRAM-SHA-512=iterations=4096
        Configs for default user-principal are producer_byte_rate=1024,consumer_byte_rate=2048

    Source: ``ConfigCommand.describeQuotaConfigs`` and, of brokers with ZooKeeper,
    ``describeConfig``.
    """
    for line in _lines(text):
        quotas = _QUOTAS.fullmatch(line.text)
        if _CREDENTIALS.fullmatch(line.text):
            into.count("SCRAM credential", "SCRAM credentials")
        elif line.is_cut:
            keys = ", ".join(dict.fromkeys(_QUOTA.findall(line.text)))
            sentence = "it ends within a name or a number: join it with the next"
            into.lose(line.number, f"a line with {keys or 'quotas'}: {sentence}")
        elif quotas is not None and not _SECRET.search(quotas[1]):
            _read_quotas(quotas[1], quotas[2], line.number, into)
        elif line.text:
            _count_or_lose(line, into)


def _count_or_lose(line: _Line, into: Collection) -> None:
    """Judge a line that is none of the tool; it may have secrets, so that it is not repeated."""
    keys = ", ".join(dict.fromkeys(_QUOTA.findall(line.text)))
    if keys and "Quota configs for " in line.text:
        why = "other text is before 'Quota configs for': take it away"
        into.lose(line.number, f"a line with {keys}: not read, because {why}")
    elif keys:
        into.lose(line.number, f"a line with {keys}: not read")
    elif line.text.startswith("Quota configs for "):
        into.lose(line.number, "a line of quotas: not read")
    else:
        into.count("other line", "other lines")


def _lines(text: str) -> Iterator[_Line]:
    """Yield the lines without prompts, and those that were wrapped as one."""
    current: _Line | None = None
    for number, raw in enumerate(text.split("\n"), 1):
        bare = _bare(raw)
        longer = None if current is None else _joined(current, bare)
        if current is not None and longer is None:
            yield current
        current = longer or _Line(number, bare)
    if current is not None:
        yield current


def _bare(raw: str) -> str:
    plain = _COLOUR.sub("", raw).strip()
    prompt = _PROMPT.match(plain)
    rest = plain[prompt.end() :] if prompt else plain
    return rest if _START.match(rest) or _VALUES.fullmatch(rest) else plain


def _joined(start: _Line, line: str) -> _Line | None:
    """Return a line with what goes on with it; null where the next is a line of its own."""
    if not line or not _START.match(start.text) or _START.match(line):
        return None
    quotas = _QUOTAS.fullmatch(start.text) or _QUOTAS.fullmatch(f"{start.text} ")
    if quotas is None:
        texts = [f"{start.text.rstrip()}{between}{line}" for between in (" ", "")]
        longer = [found for text in texts if (found := _QUOTAS.fullmatch(text)) is not None]
        if not longer:
            return None
        text = next((each for each in longer if _ENTITY.fullmatch(each[1])), longer[0])[0]
        return _Line(start.number, text, _OPEN_NAME.fullmatch(start.text) is not None)
    values = quotas[2].rstrip()
    if (not values or values.endswith(",")) and _VALUES.fullmatch(line):
        return _Line(start.number, f"{start.text.rstrip()} {line}", start.is_cut)
    if values and _NUMBERS.fullmatch(f"{values}{line}"):
        is_whole = _WHOLE.fullmatch(values.rpartition(",")[2].strip()) is not None
        may_be_whole = is_whole or not start.text.startswith("Quota")
        is_cut = start.is_cut or (may_be_whole and not line.startswith(","))
        return _Line(start.number, f"{start.text.rstrip()}{line}", is_cut)
    return None


def _read_quotas(entity_text: str, values_text: str, line: int, into: Collection) -> None:
    match = _ENTITY.fullmatch(entity_text)
    entity = {} if match is None else _entity(match)
    is_secret = _SECRET.search(values_text) is not None
    if is_secret:
        into.count("SCRAM credential", "SCRAM credentials")
    if not entity:
        keys = ", ".join(dict.fromkeys(_QUOTA.findall(f"{entity_text} {values_text}")))
        if keys:
            what = "an entity" if "=" in entity_text else entity_text
            into.lose(line, f"{what} {keys}: Kafka has no such entity")
        else:
            into.count("entity of another kind", "entities of other kinds")
        return
    values = [item.strip() for item in values_text.split(",") if item.strip()]
    if not values:
        into.count("entity without values", "entities without values")
    for item in values:
        value = _VALUE.fullmatch(item)
        key = item.partition("=")[0]
        if value is not None and (not is_secret or key in QUOTA_KEY_RULES):
            into.add(entity, key, value[2], line)
        elif not is_secret or _QUOTA.search(item):
            # Beside credentials what is no quota may be one of theirs: it is not even named.
            name = key if key in QUOTA_KEY_RULES else "a value"
            into.lose(line, f"{show_entity(entity)} {name}: not read")


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
