"""Benchmarks: this service, its competitors and the bare wire, interleaved in one run."""
