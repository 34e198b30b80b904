"""From a scenario to what a worker is asked, and what its answers are checked against."""
