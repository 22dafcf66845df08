"""Results in Postgres, where the service serves them from, and the record of runs."""
