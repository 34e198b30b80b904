"""One scenario asked of one worker, with everything that came back: for verbs that need the answer itself."""

from dataclasses import replace
from pathlib import Path

from ropecheck.adapters import protocol
from ropecheck.conformance.errors import GaveUp
from ropecheck.conformance.judge.verdict import judge
from ropecheck.conformance.known import failures as known_list
from ropecheck.conformance.known.model import bugs_of, predicted
from ropecheck.conformance.plan.planner import Plan, plan
from ropecheck.conformance.run.events import Header, ScenarioDone, Summary
from ropecheck.conformance.run.pool import Pool
from ropecheck.conformance.run.tally import Tally
from ropecheck.conformance.run.trace import Passing, trace, traced_job
from ropecheck.conformance.scenario.operations import Scenario
from ropecheck.conformance.targets.registry import Target


def asked(
    scenario: Scenario, target: Target, out: Path, known: Path, device: str = "cpu"
) -> tuple[Plan, protocol.JobAnswer, Summary]:
    """The scenario's plan, the engine's answer (traced), and the summary of a run of nothing else.

    Raises GaveUp when no worker starts or the worker does not answer.
    """
    planned = plan(scenario, device)
    with Pool[Plan](target, device=device, workers=1, out=out) as pool:
        hello = pool.start()
        entries = known_list.load(known)
        header = Header(
            target=target.name,
            hello=hello,
            device=device,
            out=out,
            known_folder=known,
            known=known_list.applying(entries, hello.target, hello.version, device),
        )
        answer = next(reply for _, reply in pool.answers([replace(planned, job=traced_job(planned.job))]))
    if not isinstance(answer, protocol.JobAnswer):
        raise GaveUp(f"{scenario.name} ({scenario.id}) could not run: {answer}")
    tally = Tally(header)
    bugs = bugs_of(known.entry.cause for known in header.known)
    tally.add(ScenarioDone("export", scenario, judge(planned, answer), predicted=predicted(planned, bugs)))
    summary = tally.summary
    summary.sort()
    causes = [finding for finding in summary.findings if not finding.failure.follows]
    trace(summary, causes, Passing(), lambda _: {scenario.id: (planned, answer)})
    return planned, answer, summary
