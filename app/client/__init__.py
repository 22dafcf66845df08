"""``kafka-client-quotas``: the command of KIP-546, a client of the HTTP interface."""
