"""The brokers: the only package that speaks Kafka's protocol."""
