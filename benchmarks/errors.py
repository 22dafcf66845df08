"""What ends a run: a figure of something that did not work would be worse than none."""


class BenchmarkError(Exception):
    """Something did not do what is measured; the text says what."""
