"""Language-neutral vectors: what an engine is given, and the tables that it must produce, as JSON.

types     what a vector file holds; its JSON schema. A forward's batch is that of scenarios and of the protocol
sources   the scenarios that vectors are made of: chosen ones, and what each declared mode gives
make      scenarios -> candidate vectors, by way of the reference
choose    a small number of candidates that covers every mode, situation and rule
derive    a vector's right answer a second time, cell by cell, from the specification alone
judged    an answer put to the rules, as in a run
faults    wrong answers: a rule that a vector names must see one of them
store     files and folders
lint      schema, ids, duplicates, size, answers derived again, rules that see nothing wrong
grade     an engine's answers against the vectors
"""
