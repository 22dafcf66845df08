"""``/analytics``: who is near a limit, who was throttled, and the runs that find it out."""
