"""A real broker and a real Postgres on this machine, for ``dev`` and for the tests."""
