"""What can be asked: quotas, what applies, the audit log, usage, credentials."""
