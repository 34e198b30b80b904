"""Merged reports on disk: the report, and the witnesses that it names."""

import shutil
from collections.abc import Sequence
from pathlib import Path

from ropecheck.conformance.errors import UsageError
from ropecheck.conformance.report.json_file import Report
from ropecheck.conformance.results.merge import merge
from ropecheck.conformance.results.read import read, report_file
from ropecheck.conformance.store.files import REPORTS, claimed, clear_failures, pretty, write_atomic


def gather(sources: Sequence[Path], out: Path) -> tuple[Report, list[str]]:
    """Merge the reports at `sources` into the folder `out`; returns the report, and a line per witness that is not
    there to be copied. Raises UsageError, and then leaves `out` as it was."""
    folders = [report_file(source).parent for source in sources]
    if any(out.resolve() == folder.resolve() for folder in folders):
        raise UsageError(f"--out {out}: one of the reports is there; name another folder")
    merged = merge(map(read, sources))
    missing = []
    with claimed(out):
        clear_failures(out / "failures")
        for file in sorted(files_of(merged)):
            found = next((folder / file for folder in folders if (folder / file).is_file()), None)
            if found is None:
                missing.append(f"{file}: beside none of the reports; `ropecheck replay` will not find it")
            else:
                (out / file).parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(found, out / file)
        write_atomic(out / REPORTS["json"], pretty(merged))
    return merged, missing


def files_of(report: Report) -> set[str]:
    """The scenario files that a report names, relative to it. Nothing outside `failures/` is one."""
    named = {one.witness.file for one in report.findings} | {one.file for one in report.part.unrun}
    return {file for file in named if Path(file).parent == Path("failures")}
