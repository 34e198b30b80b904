"""A finding as something to hand to the engine's people: a script, a test, a text for their tracker. None of them
needs ropecheck: what drives the engine travels inside."""
