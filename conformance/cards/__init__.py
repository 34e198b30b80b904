"""A finding explained: one card per suspected cause, as data. Every report shows the same cards."""
