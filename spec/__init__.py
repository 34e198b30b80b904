"""What must hold: the positions that an engine feeds its model, as plain Python over ints and tuples."""
