"""Checks of what would make results wrong or missing."""
