"""A scenario by its file, its id or its name."""

import difflib
from pathlib import Path

from ropecheck.conformance.errors import UsageError
from ropecheck.conformance.families.case import TARGETS, Case
from ropecheck.conformance.known import failures as known_list
from ropecheck.conformance.scenario.operations import Scenario
from ropecheck.conformance.scripts.script import Script
from ropecheck.conformance.store.files import AnyStored, Stored, StoredCase, StoredScript, read_any


def find_scenario(name: str, out: Path, known_folder: Path) -> AnyStored:
    """A file; or an id among OUT/failures, the chosen scenarios and the known failures' witnesses; or a chosen
    scenario's or prompt-table case's name. Raises UsageError with what comes close."""
    path = Path(name)
    if path.is_file() or path.suffix == ".json" or "/" in name:
        return read_any(path)
    failed = out / "failures" / f"{name}.json"
    if failed.is_file():
        return read_any(failed)
    from ropecheck.conformance.scenarios.chosen import chosen  # building them all takes a moment
    from ropecheck.conformance.scripts.chosen import all_scripts

    witnesses = [known.witness for known in known_list.load(known_folder)]
    scripts: list[Script] = [*all_scripts(), *(one for one in witnesses if isinstance(one, Script))]
    for script in scripts:
        if name in (script.id, script.name):
            return StoredScript(script=script, target="", version="", device="")
    scenarios: list[Scenario] = [*chosen(), *(one for one in witnesses if isinstance(one, Scenario))]
    for scenario in scenarios:
        if name in (scenario.id, scenario.name):
            return Stored(scenario=scenario, target="", version="", device="")
    cases = _cases()
    for case in cases:
        if name in (case.id, case.name):
            return StoredCase(case=case, target="", version="", device="")
    names = [one.name for one in scripts] + [one.name for one in scenarios] + [one.name for one in cases]
    ids = [one.id for one in scenarios] + [one.id for one in cases]
    close = difflib.get_close_matches(name, names + ids, n=3)
    hint = f"; close: {', '.join(close)}" if close else ""
    raise UsageError(
        f"no scenario {name!r} in {out / 'failures'}, the chosen scenarios or the known failures' witnesses{hint}"
    )


def _cases() -> list[Case]:
    from ropecheck.conformance.families.cases import all_cases

    return [case for target in TARGETS for case in all_cases(target, count=0)]
