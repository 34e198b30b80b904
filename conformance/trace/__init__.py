"""Streams of events of an engine at work (`ropecheck.adapters.events`) and their judge."""
