"""Benchmarks: every contender in one process and one run."""
