"""Toy checkpoints: whole models of some megabytes with random weights, made on the spot. No engine is named here."""
