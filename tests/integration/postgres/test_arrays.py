"""Arrays of our own writing are what Postgres reads."""

from app.postgres.bulk import bytes_array, integer_array
from app.postgres.pool import Database, Lease

BYTES = [b"", b"\0", b"\\x41", b'"{,}"', bytes(range(256))]
INTEGERS = [0, -1, 32_000]


async def test_arrays_are_read_as_they_were_meant(database: Database):
    async def read(lease: Lease) -> object:
        query = "select %s::bytea[], %s::smallint[], %s::bytea[], %s::smallint[]"
        written = (bytes_array(BYTES), integer_array(INTEGERS), bytes_array([]), integer_array([]))
        return await (await lease.driver.execute(query, written)).fetchone()

    assert await database.querying.run(read) == (BYTES, INTEGERS, [], [])
