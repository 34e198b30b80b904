"""Verdicts on a plan and an answer: rules are asked, nothing else decides."""
