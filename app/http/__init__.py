"""The HTTP interface: bytes to domain values, domain values to bytes."""
