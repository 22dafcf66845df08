"""Who is near a limit, and which quota makes it: jobs on Spark over the brokers' quota metrics."""
