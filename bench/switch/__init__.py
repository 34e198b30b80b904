"""Inside a server that is measured."""
