"""Scenarios worth keeping: those that found something, or reached what no other did."""
