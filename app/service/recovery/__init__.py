"""What becomes certain later: outcomes that were lost, and changes that others made."""
