"""How Postgres executes the statements that write the log."""

import re

import psycopg

from benchmarks.log_growth import planned
from tests.testkit.postgres import AuditDatabase

SCAN = re.compile(r"(?:Seq Scan|Scan using \w+) on (?:audit|quota|idempotency)\w*.*\n(?=(.*))")


def test_no_statement_that_writes_the_log_reads_a_whole_table(audit_database: AuditDatabase):
    with psycopg.connect(audit_database.superuser_url, autocommit=True) as postgres:
        plans = [plan for _, plan in planned(postgres)]
    following = [match[1].strip() for plan in plans for match in SCAN.finditer(plan)]
    assert len(following) > 20
    assert [line for line in following if not line.startswith("Index Cond:")] == []
