"""`python -m ropecheck`: the command line."""

from ropecheck.conformance.cli import main

if __name__ == "__main__":
    main()
