"""What buckets did beside their limits: minutes, hours, days and incidents."""
