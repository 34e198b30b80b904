"""From a request to its table: the engine's own processors, and the list of routes that its source has."""
