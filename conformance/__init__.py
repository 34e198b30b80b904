"""Scenarios, verdicts, the runner and its reports."""
