"""One archive for a host with a GPU and without a network."""
