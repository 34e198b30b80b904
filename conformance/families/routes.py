"""Names of the routes from a request to its table: a case whose builder is one of them is sent through it."""

PREFIX = "route: "

ROUTES: dict[str, str] = {
    "client": "pictures and clips as a client sends them",
    "token prompt": "the same with a prompt of token ids",
    "batch": "one of two requests that are sent in lists",
    "chat": "a message of a chat in parts, as /v1/chat/completions takes it apart",
    "client, every other frame": "clips of twice the frames that the processor takes",
    "cache": "pictures out of the cache of preprocessed media",
    "processor output": "pictures that the client preprocessed",
    "processor output, grids in lists": "the same, with grids in lists",
    "embeddings": "pictures that the client ran through the vision tower",
    "encoder apart": "the vision tower in another process (EPD)",
    "scheduler": "a request without a table: the scheduler's fallback",
    "transformers back end": "the processor of the Transformers back end",
    "rust server": "media that the Rust server preprocessed, as the scheduler unpacks them",
    "dictionary": "a processor's output as a dictionary",
    "second turn": "a session's second turn, as its scheduler takes it in",
    "second turn without a table": "the same, where the scheduler's fallback makes the table",
    "second turn out of the cache": "the same, whose processor hands over padded ids",
}
"""Name -> what it is."""

TWICE = "two requests, "
"""Before a route's name: two requests through it, with the prefix cache between them."""

IDENTITY_ROUTES = ("client", "encoder apart", "processor output")

TURN = "second turn"
"""Begins the names of the routes on which a message comes as two turns of a session."""

BUILDERS = (*(PREFIX + route for route in ROUTES), *(PREFIX + TWICE + route for route in IDENTITY_ROUTES))
"""What the builder of such a case may be."""
