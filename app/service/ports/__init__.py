"""The ports: what the use cases need of brokers, the audit log and operators."""
