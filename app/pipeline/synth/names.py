"""Names of made-up users and client-ids: plain ones, and all the odd ones that Kafka allows."""

from typing import Final

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

DEFAULT_LOOKALIKE: Final = "<default>"
"""An ordinary name, which must not be taken for the default entity."""

_LOOKALIKE: Final = 1
_EVERY: Final = 40

_ODD_USERS: Final = {
    5: "CN=app-{},OU=Kafka,O=Example Corp",
    6: "Jürgen Groß {}",
    7: "用户-{}",
    8: 'a"b\\c*d?{}',
    9: "100%+{} ~x",
    10: "service@team-{}.example",
    11: "\N{ROCKET}{}",
    12: "%41-{}",
    13: " blank-{} ",
}
_ODD_CLIENTS: Final = {
    5: "etl, hourly ({})",
    6: "größe-{}",
    7: 'say "hi"; {}',
    8: "c:\\apps\\{}.exe",
    9: "any*?{}",
    10: "connector-消费-{}",
    11: "k=v,{}",
}


def user_name(index: Column) -> Column:
    """Return the name of a user by its number: never empty, different for different numbers."""
    plain = F.concat(F.lit("team-"), index % 97, F.lit(".svc-"), index)
    return _named(index, plain, _ODD_USERS)


def client_name(index: Column) -> Column:
    """Return the name of a client-id by its number, likewise."""
    plain = F.concat(F.lit("app-"), index % 31, F.lit("-"), index)
    return _named(index, plain, _ODD_CLIENTS)


def _named(index: Column, plain: Column, odd: dict[int, str]) -> Column:
    named = F.when(index == _LOOKALIKE, F.lit(DEFAULT_LOOKALIKE))
    for remainder, pattern in odd.items():
        before, _, after = pattern.partition("{}")
        name = F.concat(F.lit(before), index, F.lit(after))
        named = named.when(index % _EVERY == remainder, name)
    return named.otherwise(plain)
