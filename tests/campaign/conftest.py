"""The long campaign, once in this process: what the driver and Ray come to is compared with it."""

from __future__ import annotations

import pytest

from ropecheck.conformance.campaign.station import BlockDone, Station
from ropecheck.conformance.report.json_file import Report
from ropecheck.conformance.run import phases
from tests.campaign.planted import FEW
from tests.campaign.support import LONG, Seen, run_here


@pytest.fixture(scope="session")
def long(tmp_path_factory: pytest.TempPathFactory) -> tuple[Report, dict[int, BlockDone]]:
    """The report of LONG, and what each block came to."""
    crew = Seen(Station())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(phases, "STATEFUL_COUNT", FEW)
        return run_here(tmp_path_factory.mktemp("long"), LONG, crew), crew.done
