"""A whole server with a toy model: clients' scripts played over HTTP, its forwards recorded and judged, its answers
compared with those to the same histories asked afresh."""
