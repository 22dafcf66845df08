"""What quotas were when: snapshots and the audit log."""
