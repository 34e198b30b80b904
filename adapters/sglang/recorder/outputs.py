"""What the scheduler sends towards clients, as events.

| spec field | adapter field | engine field |
| --- | --- | --- |
| what the client gets | events.Output | `BatchTokenIDOutput`, `AbortReq` |

Nothing is faked here.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ropecheck.adapters import events


def told(output: Any) -> Iterator[events.Output]:
    """The events of one message; none for messages that are no answers."""
    if hasattr(output, "rids") and hasattr(output, "output_ids"):
        searched = getattr(output, "beam_search_output", None) or [None] * len(output.rids)
        rows = zip(output.rids, output.output_ids or (), output.finished_reasons, searched, strict=True)
        for rid, ids, reason, beams in rows:
            yield _one(rid, tuple(beams.sequences[0].tokens if beams else ids or ()), reason)
    elif hasattr(output, "abort_all"):
        yield _one(output.rid, (), output.finished_reason or {"type": "abort"})


def _one(rid: str, tokens: tuple[int, ...], reason: Any) -> events.Output:
    finished = "" if reason is None else str(reason.get("type", "")) or "?"
    message = "" if finished != "abort" else str(reason.get("message") or "")[:200]
    return events.Output(req=rid, tokens=tokens, finished=finished, message=message)
