"""``/quotas/alterations``: change quotas; every change has a record."""
