"""What other tools keep, read into entities and values: one module for each tool."""
