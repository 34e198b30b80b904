"""`ropecheck prove`: the laws for all sizes, by z3.

What runs is the specification itself. Its functions are called with numbers that stand for any number (numbers.py); a
comparison that could go both ways is taken both ways (explorer.py); a loop over a sequence of unknown length is run for
one arbitrary element, after its source was checked to carry nothing from one element to the next (loops.py). Where two
rows stand for any number, the source must say that each row is made from itself (rows.py), and plain batches must show
it (batches.py). z3 says which paths exist. A law that breaks on one of them gives values, and these are run through the
same statement as plain numbers (plain.py): only what breaks there too is a counterexample.

laws.py, sessions.py and columns.py state what is proved and never import z3, so that `explain` can name it.
"""
