"""The only place that knows an engine."""
