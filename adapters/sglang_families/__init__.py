"""Drives the prompt-table builders of SGLang, family by family."""
