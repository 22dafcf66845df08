"""The audit log in Postgres: the only room that speaks SQL."""
