"""SGLang's own Scheduler in a process of its own: its loop, intake, admission, caches, pools and output run as they
are; the network's forward answers from a script.

| spec field | adapter field | engine field |
| --- | --- | --- |
| a request of a client | play.Deliver | `TokenizedGenerateReqInput`, through `recv_requests` |
| a turn of the loop | play.Rounds | one pass of `event_loop_normal` or `event_loop_overlap` |
| columns of a forward | events.Forward | what the model's `forward` is given |

Faked: see `FAKED`.
"""

from __future__ import annotations

FAKED = (
    "scheduler: the model's forward (target and draft) records what it is given and answers from the script",
    "scheduler: on a CPU a server may be asked for what a GPU's may: overlap with speculation, DFLASH, DSPARK",
    "scheduler: drafts of several layers, and those that share the target's cache, are the engine's EAGLE head",
    "scheduler: weights are the engine's own dummies; the checkpoint is a configuration of some kilobytes",
    "scheduler: the tokenizer process (requests are handed to recv_requests) and the detokenizer (outputs are read)",
    "scheduler: the multimodal processor (its output is the script's table, delta and items with a hash)",
    "scheduler: of a decode server the prefill server (the engine's fake), of a hierarchical cache the copies",
    "scheduler: a hierarchical cache keeps no 10 GiB of the host's memory free: a toy's is some megabytes",
    "scheduler: on a CPU Triton's language, for the engine's programs over whole numbers (they run on numpy)",
    "scheduler: the other stage of a pipeline (one rank is the first and the last, and hears what it sends)",
    "scheduler: the clock goes on at once by the time after which a session times out",
    "scheduler: vllm._custom_ops.rotary_embedding is importable and never called",
)
