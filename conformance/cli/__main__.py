"""`python -m ropecheck.conformance.cli`."""

from ropecheck.conformance.cli import main

main()
