"""Which quota limits each series, and the bucket that it spends from."""
