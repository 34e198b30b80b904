"""Language-neutral vectors: what an engine is given, and the tables that it must produce, as JSON.

types    what a vector file holds; its JSON schema
derive   a vector's right answer, from the specification alone
make     scenarios -> candidate vectors, by way of the reference
choose   a small number of candidates that covers every mode, situation and rule
store    files and folders
lint     schema, ids, duplicates, size, and every answer derived a second time
grade    an engine's answers against the vectors
"""
