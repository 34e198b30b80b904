"""What the suite does to itself: the reference as an engine, planted faults, scores."""
