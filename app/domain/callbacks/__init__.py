"""Quota callbacks (KIP-257): what decides how high a limit is, and who shares it."""
