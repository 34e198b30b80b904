"""What is known to be wrong: an engine's failures, and its differences from the families' definitions."""
