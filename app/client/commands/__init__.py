"""One module for each thing that the command does."""
