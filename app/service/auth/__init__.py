"""Who may do what: by ACLs, by the brokers themselves, by a policy."""
