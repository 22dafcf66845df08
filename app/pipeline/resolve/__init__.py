"""Which quota limits each observation, and the minutes of the buckets that share it."""
