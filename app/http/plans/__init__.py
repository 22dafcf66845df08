"""``/quotas/plans``: compare a document with what is stored, then apply it."""
