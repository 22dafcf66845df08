"""List the locks of an alteration in one row, so that a lock is taken and freed within its page.

Locks were found by an index of `quota_entity.alteration_id`. Whoever takes a lock or frees it
changes that column, and so wrote a new entry into each index of the table. `open_alteration` has a
row for each alteration that holds a lock, with the hashes of its entities: locks are found by
primary key, and no index changes with them. The last lock takes the row along. An entity that has
another `alteration_id` meanwhile is not the alteration's any more, whatever its row lists.

Half of each page of `quota_entity` is free for the next version of its rows.
"""

from collections.abc import Sequence
from typing import Final

from alembic import context, op

revision: str = "0009"
down_revision: str | None = "0008"
branch_labels: str | Sequence[str] | None = None
depends_on: str | Sequence[str] | None = None

OPEN_ALTERATION: Final = """
create table open_alteration (
  alteration_id uuid primary key,
  cluster_id text not null check (length(cluster_id) between 1 and 249),
  entity_hashes bytea[] not null
);
alter table open_alteration alter column entity_hashes set storage external;
insert into open_alteration (alteration_id, cluster_id, entity_hashes)
select alteration_id, cluster_id, array_agg(entity_hash order by entity_hash)
from quota_entity where alteration_id is not null group by alteration_id, cluster_id;
create view held_entity as
  select held.*
  from open_alteration as open cross join unnest(entity_hashes) as listed(entity_hash)
  join quota_entity as held on held.cluster_id = open.cluster_id
    and held.entity_hash = listed.entity_hash and held.alteration_id = open.alteration_id;
revoke all on open_alteration, held_entity from public;
drop index quota_entity_locked;
alter table quota_entity set (fillfactor = 50);
"""

INDEX_OF_LOCKS: Final = """
drop view held_entity;
drop table open_alteration;
alter table quota_entity reset (fillfactor);
create unique index quota_entity_locked on quota_entity (alteration_id, rests_on, ordinal)
  where alteration_id is not null;
"""

Changes = Sequence[tuple[str, str]]

OPENED: Final = """    returning alteration_id, rests_on, ordinal
  )"""

BY_LIST: Final = (
    (
        "conclusions conclusion[], alterations uuid[]",
        """conclusions conclusion[], alterations uuid[], clusters text[],
  hashes bytea[]""",
    ),
    (
        "held.alteration_id = any(alterations)",
        """held.alteration_id = any(alterations)
    and held.cluster_id = any(clusters) and held.entity_hash = any(hashes)""",
    ),
    (
        "where alteration_id = any(alterations)",
        """where alteration_id = any(alterations)
    and cluster_id = any(clusters) and entity_hash = any(hashes)""",
    ),
)
"""A function gets the lists of all alterations of a call, and looks up by primary key."""

CHANGES: Final[dict[str, Changes]] = {
    "TAKE_LOCKS": [
        (
            OPENED,
            f"""{OPENED}, opened as (
    insert into open_alteration (alteration_id, cluster_id, entity_hashes)
    select alteration_id, cluster_id, array_agg(entity_hash order by entity_hash)
    from wanted group by alteration_id, cluster_id
  )""",
        ),
    ],
    "RECORD_INTENTS": [
        (
            """where alteration_id = any(lost);
    delete from idempotency""",
            """
    where alteration_id = any(lost)
      and cluster_id = any(array(
        select cluster_id from open_alteration where alteration_id = any(lost)))
      and entity_hash = any(array(
        select unnest(entity_hashes) from open_alteration where alteration_id = any(lost)));
    delete from open_alteration where alteration_id = any(lost);
    delete from idempotency""",
        ),
    ],
    "FIND_REFUSED": BY_LIST,
    "CHANGE_OWNERS": BY_LIST,
    "CHANGE_TEMPORARY": BY_LIST,
    "FREE_LOCKS": [
        *BY_LIST,
        (
            "not rests_on));\nend",
            """not rests_on));
  delete from open_alteration where alteration_id = any(alterations)
    and alteration_id <> all (array(select alteration_id from quota_entity
      where alteration_id = any(alterations)
        and cluster_id = any(clusters) and entity_hash = any(hashes)));
end""",
        ),
    ],
    "KEEP_KEYS": [
        (
            "select alteration_id from quota_entity where",
            "select alteration_id from open_alteration where",
        ),
    ],
    "RECORD_CONCLUSIONS": [
        BY_LIST[-1],
        ("(conclusions, alterations", "(conclusions, alterations, clusters, hashes"),
        (
            "begin\n",
            """  clusters constant text[] := array(
    select distinct cluster_id from open_alteration where alteration_id = any(alterations));
  hashes constant bytea[] := array(
    select unnest(entity_hashes) from open_alteration where alteration_id = any(alterations));
begin
""",
        ),
    ],
}


def _create(name: str, changes: Changes) -> None:
    """Create a function again as the migrations before have it, with changes."""
    first, second = (context.script.get_revision(number).module for number in ("0006", "0007"))
    script = second.CHANGE_TEMPORARY if name == "CHANGE_TEMPORARY" else getattr(first, name)
    before = {each: getattr(second, each) for each in ("CHANGE_OWNERS", "RECORD_CONCLUSIONS")}
    for old, new in [*([before[name]] if name in before else []), *changes]:
        script = script.replace(old, new)
    op.execute(f"drop function {name.lower()}")
    op.execute(script.replace("{settings}", first.SETTINGS))


def upgrade() -> None:
    """List the locks that are held, and have the functions find them by the list."""
    op.execute(OPEN_ALTERATION)
    for name, changes in CHANGES.items():
        _create(name, changes)


def downgrade() -> None:
    """Find locks by the index again."""
    for name in CHANGES:
        _create(name, ())
    op.execute(INDEX_OF_LOCKS)
