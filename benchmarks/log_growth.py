"""``python -m benchmarks.log_growth``: what an alteration costs once the audit log has grown.

Writes benchmarks/pages/log.md: the blocks that Postgres touches for an alteration beside an empty
log and beside a long one, and the plan of each statement inside the functions that write it.
"""

import argparse
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import httpx
import psycopg
from psycopg import sql

from app.localdev.local_directory import LocalDevError
from benchmarks.competitors.peers import Peers
from benchmarks.measures import BenchmarkError, grid
from benchmarks.report import environment, environment_table
from benchmarks.stack import Progress, Stack, running_stack

_PAGE: Final = Path("benchmarks/pages/log.md")
_ROWS: Final = 10_000_000
_STEP: Final = 500_000
_ROUNDS: Final = 20

_FILL: Final = """
with request as (
  select date_trunc('month', now()) + (now() - date_trunc('month', now())) * random() as at,
    md5(n::text)::uuid as id, n
  from generate_series({first}, {last}) as n
), events as (
  insert into audit_event (received_at, alteration_id, seq, event_type, at, occurred_at, cluster_id,
    principal, action, documents_hash, payload, leaf_hash)
  select at, id, seq, case seq when 0 then 'intent' else 'outcome' end, at, at,
    case seq when 0 then {cluster} end, case seq when 0 then 'User:team-' || n % 500 end,
    case seq when 0 then 'alter' end, hash, '{{}}', sha256('\\x00'::bytea || timestamptz_send(at)
      || timestamptz_send(at) || hash || '{{}}')
  from request, (values (0), (1)) as event(seq), sha256('{{}}') as hash
)
insert into audit_entity (received_at, alteration_id, ordinal, seq, at, cluster_id, user_kind,
  user_name, client_id_kind, ip_kind, other_types, verdict, document)
select at, id, 0, seq, at, case seq when 0 then {cluster} end, case seq when 0 then 'name' end,
  case seq when 0 then convert_to('user-' || n % 100000, 'UTF8') end,
  case seq when 0 then 'absent' end, case seq when 0 then 'absent' end,
  case seq when 0 then false end, case seq when 1 then 'applied' end, '{{}}'
from request, (values (0), (1)) as event(seq)
"""

_LOCKS: Final = """
insert into quota_entity (cluster_id, entity_hash, entity)
select {cluster}, sha256(n::text::bytea), n::text from generate_series(1, 100000) as n;
insert into idempotency (key_hash, fingerprint, alteration_id, expires_at)
select sha256(n::text::bytea), sha256(n::text::bytea), md5(n::text)::uuid, now() + interval '1 day'
from generate_series(1, 200000) as n;
insert into quota_owner (cluster_id, entity_hash, key, owner, value, entity, alteration_id,
  applied_at)
select {cluster}, sha256(n::text::bytea), 'producer_byte_rate', 'team-' || n % 500, 1, n::text,
  md5(n::text)::uuid, now()
from generate_series(1, 100000) as n
"""

_OF_A_CALL: Final = {
    "conclusions": "conclusion[]",
    "alterations": "uuid[]",
    "clusters": "text[]",
    "hashes": "bytea[]",
    "now": "timestamptz",
}

_VARIABLES: Final[Mapping[str, Mapping[str, str]]] = {
    "claim_keys": {"keys": "json", "keep_s": "double precision"},
    "take_locks": {
        "events": "new_event[]",
        "locks": "json",
        "handed_over_within": "double precision",
    },
    "record_intents": {"lost": "uuid[]"},
    "add_events": {"events": "new_event[]", "entities": "new_entity[]", "now": "timestamptz"},
    **dict.fromkeys(("find_refused", "change_owners", "free_locks"), _OF_A_CALL),
    "keep_keys": {
        "alterations": "uuid[]",
        "repeatable": "uuid[]",
        "starts": "timestamptz[]",
        "keep_s": "double precision",
    },
    "record_conclusions": {"alterations": "uuid[]", "clusters": "text[]", "hashes": "bytea[]"},
}
"""The variables that the statements of each function read."""

_INNER: Final = re.compile(
    r"^ *(with|update|delete|perform from)\b(.*?);$", re.DOTALL | re.MULTILINE
)
_INTO: Final = re.compile(r"\binto (refused|lost)\b")

_HEAD: Final = """# A long audit log

Written by one run of `python -m benchmarks.log_growth` on one machine. The rows are spread over the
current month, 100,000 users and 500 principals; beside them are 100,000 locks and states of
entities, 100,000 values that have an owner, and 200,000 idempotency keys. A block has 8 KiB; each
count is the average of 20 alterations."""

_PLANS: Final = """## Plans

The statements of `record_intents` and `record_conclusions`, which write the log, and of what they
call, with their generic plans beside the long log: rows that exist already are found by an index
alone, and a scan of the log is pruned to the partition of the time inside the request's id when it
is executed."""


class Probe:
    """Asks the service as alice, and Postgres as its superuser."""

    def __init__(self, stack: Stack) -> None:
        self._api = stack.client(timeout_s=120)
        self._value = 1000
        self.postgres = psycopg.connect(stack.superuser_url, autocommit=True)

    def close(self) -> None:
        """Close both."""
        self._api.close()
        self.postgres.close()

    def alter(self, entities: int) -> None:
        """Alter so many users, each to a new value.

        Raises:
            BenchmarkError: It was not answered with 200.
        """
        self._value += 1
        alterations = [
            {
                "entity": {"user": f"user-{number}"},
                "ops": [{"key": "producer_byte_rate", "value": self._value}],
            }
            for number in range(entities)
        ]
        answer = self._api.post("/quotas/alterations", json={"alterations": alterations})
        if answer.status_code != httpx.codes.OK:
            raise BenchmarkError(f"answered {answer.status_code}: {answer.text}")

    def text(self, query: str) -> str:
        """Return the one text of a query."""
        ((value,),) = self.postgres.execute(query.encode()).fetchall()
        return str(value)

    def blocks_per_alteration(self, entities: int) -> float:
        """Return the blocks that one alteration touches, on average over some."""
        self.alter(entities)
        before = self._blocks()
        for _ in range(_ROUNDS):
            self.alter(entities)
        return (self._blocks() - before) / _ROUNDS

    def _blocks(self) -> int:
        # Backends report what they have done when they are idle, at the latest when asked.
        self.postgres.execute("select pg_sleep(1.5), pg_stat_force_next_flush()")
        return int(
            self.text(
                "select sum(heap_blks_hit + heap_blks_read + idx_blks_hit + idx_blks_read)"
                " from pg_statio_user_tables"
            )
        )


def main(argv: Sequence[str] | None = None) -> int:
    """Run; return 0, or 1 where something did not work."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.log_growth", description=__doc__)
    parser.add_argument(
        "--rows", type=int, default=_ROWS, help=f"of each table of the log; {_ROWS:,} without it"
    )
    options = parser.parse_args(argv)
    progress = Progress()
    try:
        with running_stack(progress) as stack:
            written = _measured(stack, options.rows, progress)
    except (BenchmarkError, LocalDevError) as error:
        print(f"log_growth: {error}", file=sys.stderr)
        return 1
    _PAGE.write_text(written, encoding="utf-8")
    return 0


def _measured(stack: Stack, rows: int, progress: Progress) -> str:
    where = environment(stack.database_url, Peers())
    probe = Probe(stack)
    try:
        progress.say("altering beside an empty log")
        sizes = (1, 1000)
        empty = [probe.blocks_per_alteration(size) for size in sizes]
        fill(probe, rows, progress)
        progress.say("altering beside a long log")
        long = [probe.blocks_per_alteration(size) for size in sizes]
        progress.say("planning")
        plans = list(planned(probe.postgres))
    finally:
        probe.close()
    figures = [
        [f"{size:,}", f"{few:,.0f}", f"{many:,.0f}", f"{many / few:.2f}"]
        for size, few, many in zip(sizes, empty, long, strict=True)
    ]
    columns = ("entities of an alteration", "empty log", f"{rows:,} rows in each table", "ratio")
    sections = [_HEAD, environment_table(where)]
    sections += ["## Blocks that an alteration touches", grid(columns, figures)]
    sections += [_PLANS, *(f"```\n{statement}\n\n{plan}\n```" for statement, plan in plans)]
    return "\n\n".join(sections) + "\n"


def fill(probe: Probe, rows: int, progress: Progress) -> None:
    """Add so many rows to each table of the log, and what is locked and repeatable beside it."""
    cluster = sql.Literal(probe.text("select cluster_id from quota_entity limit 1"))
    for first in range(0, rows // 2, _STEP):
        progress.say(f"{2 * first:,} of {rows:,} rows")
        last = min(first + _STEP, rows // 2) - 1
        probe.postgres.execute(sql.SQL(_FILL).format(first=first, last=last, cluster=cluster))
    probe.postgres.execute(sql.SQL(_LOCKS).format(cluster=cluster))
    progress.say("analyzing")
    probe.postgres.execute("vacuum analyze")


def planned(postgres: psycopg.Connection[Any]) -> Iterator[tuple[str, str]]:
    """Yield each statement of the functions that write the log, and its plan."""
    query = "select proconfig from pg_proc where proname = 'record_conclusions'"
    ((settings,),) = postgres.execute(query).fetchall()
    for name, variables in _VARIABLES.items():
        row = postgres.execute("select prosrc from pg_proc where proname = %s", [name])
        ((body,),) = row.fetchall()
        with postgres.transaction():
            for setting in settings:
                key, _, value = str(setting).partition("=")
                postgres.execute("select set_config(%s, %s, true)", [key, value])
            for match in _INNER.finditer(str(body)):
                statement = match[0].strip().rstrip(";").replace("perform from", "select from", 1)
                statement = _INTO.sub("", statement)
                for number, (variable, kind) in enumerate(variables.items(), 1):
                    statement = re.sub(
                        rf"(?<![.\w]){variable}\b(?!\.)", f"${number}::{kind}", statement
                    )
                yield f"-- in {name}\n{statement}", _plan(postgres, statement)


def _plan(postgres: psycopg.Connection[Any], statement: str) -> str:
    explain = f"explain (generic_plan, costs off) {statement}"
    return "\n".join(
        str(row[0]) for row in psycopg.ClientCursor(postgres).execute(explain.encode())
    )


if __name__ == "__main__":
    sys.exit(main())
