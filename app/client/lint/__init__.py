"""What is stored and does nothing, or not what it seems to."""
