"""Scenarios on disk: reading, writing, finding by name."""
