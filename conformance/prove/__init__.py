"""`ropecheck prove`: the laws for all sizes, by z3.

What runs is the specification itself: the functions that declare the modes, the rules and the placing of histories are
called with numbers that stand for any number (explorer.py) and sequences of any length (sequences.py, stand_ins.py). A
comparison that could go both ways is taken both ways; what cannot be followed is not proved. A path without a proof is
tried on plain numbers through the same statement (plain.py): only what breaks there is a counterexample.

laws.py, sessions.py and columns.py state what is proved and never import z3, so that `explain` can name it.
"""
