"""Who would have been throttled, had other quotas applied."""
