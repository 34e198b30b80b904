"""Prompt tables of the model families: cases, what they are checked against, known differences."""
