"""The audit log in Postgres: the only package that speaks SQL."""
