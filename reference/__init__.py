"""The model that runs: whole-batch tables and the lifecycle of requests, composed from spec rules."""
