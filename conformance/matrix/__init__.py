"""Releases side by side, and where a failure began or ended."""
