"""``/quotas/resolve``: what applies to an identity, and why."""
