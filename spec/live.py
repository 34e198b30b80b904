"""What a client of a whole server may rely on: at temperature 0 an answer depends on the history alone.

Whatever happened to a request (it was prefilled in chunks, hit a prefix cache, was a session's turn, was retracted,
drafted for, replayed from a graph), its tokens are those of a fresh request that sends the whole history, on a server
that does nothing else. Numbers may differ in the last bits; positions that are wrong change them by far more.
"""

from __future__ import annotations

from dataclasses import dataclass

from ropecheck.spec.rules import Violation, rule


@dataclass(frozen=True, slots=True, kw_only=True)
class Replayed:
    """One answer beside that to the same history, asked afresh."""

    got: tuple[int, ...]
    """Observed tokens."""
    right: tuple[int, ...]
    """Of the fresh request."""
    got_logprobs: tuple[float, ...] = ()
    """Observed: log-probability of each token; () where they were not asked for."""
    right_logprobs: tuple[float, ...] = ()
    margins: tuple[float, ...] = ()
    """Of the fresh request: how much likelier each token is than the next best."""
    tolerance: float
    """Log-probabilities closer than this are the same but for rounding."""


@rule("live.same_answer", of=Replayed, source="public interface: temperature 0")
def same_answer(view: Replayed) -> Violation | None:
    """The answer to a request must be the answer to a fresh request with its whole history.

    Where two tokens are equally likely within the tolerance, rounding decides between them, and what follows is another
    text.
    """
    for at, (got, right) in enumerate(zip(view.got, view.right, strict=False)):
        if got != right:
            if at < len(view.margins) and view.margins[at] <= view.tolerance:
                return None
            return Violation(
                axis="answer",
                at=at,
                expected=right,
                observed=got,
                shape="another token",
                message=f"token {at} of the answer is {got}, asked afresh it is {right}",
            )
        if at < len(view.got_logprobs) and at < len(view.right_logprobs):
            apart = view.got_logprobs[at] - view.right_logprobs[at]
            if abs(apart) > view.tolerance:
                return Violation(
                    axis="answer",
                    at=at,
                    expected=f"{view.right_logprobs[at]:.4f}",
                    observed=f"{view.got_logprobs[at]:.4f}",
                    shape="another probability",
                    message=f"token {at} of the answer has log-probability {view.got_logprobs[at]:.4f}, asked afresh "
                    f"{view.right_logprobs[at]:.4f}",
                )
    if len(view.got) > len(view.right):
        message = f"{len(view.got)} tokens, asked afresh {len(view.right)}"
        return Violation(
            axis="answer", expected=len(view.right), observed=len(view.got), shape="longer", message=message
        )
    return None
