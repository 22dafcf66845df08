"""Other clients of the same two calls, each in a process and mostly a language of its own."""
