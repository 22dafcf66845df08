"""One module for each job: its options, and how it is run."""
