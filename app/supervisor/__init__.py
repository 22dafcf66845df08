"""One parent and several workers."""
