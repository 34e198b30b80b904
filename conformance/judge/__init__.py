"""Verdicts: pure functions of a plan and an answer."""
