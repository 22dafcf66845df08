"""Where observations and quotas come from."""
