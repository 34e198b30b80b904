"""What an SGLang at work is seen to do, as events: one reader of forwards for the stepped scheduler and for servers.

| spec field | adapter field | engine field |
| --- | --- | --- |
| columns of a forward | events.Forward | what the model's `forward` is given, or the graph's own buffers |
| a client's request | events.Arrived | `TokenizedGenerateReqInput` as the scheduler receives it |
| committed tokens | events.Forward.answers | `GenerationBatchResult.next_token_ids`, `.accept_lens` |
| what the client gets | events.Output | `BatchTokenIDOutput`, `AbortReq` on their way out |

Nothing is faked, and nothing of the engine is changed but that its functions are watched.
"""
