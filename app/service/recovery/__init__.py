"""What becomes known later: outcomes that were lost, and changes that others made."""
