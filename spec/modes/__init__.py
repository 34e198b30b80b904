"""One file per forward mode: which token indices the mode reads, and what fills the rest of its table.

Every mode reads a set of indices from the ideal position function (spec/history.py). Each file gives, as rules: how
many columns the batch has, which index each column holds in the 1-D table, and which column of the ideal function it
holds in the three-row table; then `forward`, which puts them together for a batch, in batch order.
"""
