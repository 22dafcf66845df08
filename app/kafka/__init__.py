"""The brokers: the only room that speaks Kafka's protocol."""
