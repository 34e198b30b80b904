"""Waiting for somebody to edit a checkout."""

from collections.abc import Iterator

from ropecheck.conformance.errors import UsageError
from ropecheck.conformance.targets.checkout import Checkout, checkout_of


def edits(start: Checkout) -> Iterator[Checkout]:
    """The checkout whenever its code is another than it was at the last time, until Ctrl-C. Raises UsageError where
    the package that watches files is not installed."""
    try:
        from watchfiles import PythonFilter, watch
    except ImportError as error:
        raise UsageError("--watch needs the package watchfiles: pip install 'ropecheck[watch]'") from error
    seen = start.identity
    package = start.root / "sglang"
    # Woken now and then too: an edit that came while nobody waited is no event here.
    for _ in watch(package, watch_filter=PythonFilter(), yield_on_timeout=True, rust_timeout=1000):
        found = checkout_of(start.root)
        if found.identity != seen:
            seen = found.identity
            yield found
