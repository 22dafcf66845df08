"""``/quotas``: what is stored, and what can be."""
