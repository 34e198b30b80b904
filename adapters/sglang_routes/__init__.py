"""From a client's media to the scheduler's table: the engine's own processors, on pictures and clips made here."""
