"""Desired quotas: what a document would change, who owns what, and applying it."""
