"""How a path through a statement ends, besides well."""


class Unanswered(Exception):
    """What cannot be followed."""


class NotHere(Exception):
    """A path, or plain numbers, that a statement says nothing about."""
