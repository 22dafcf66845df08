"""Metrics of any shape to one row a minute, broker and name."""
