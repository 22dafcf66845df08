"""What several workers of one service do together."""
