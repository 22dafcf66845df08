"""Client-quota administration for Apache Kafka over REST."""
