"""The runner, the known-failure list, the reports and the command line."""
