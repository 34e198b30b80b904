"""The SGLang worker: drives the released package's own classes and functions, and computes no position.

One folder, read in this order: `worker` (process and pipe), `boot` (imports and configuration), `capabilities` (what
this release has), `requests` (arrivals, sessions, retraction), `batches` (one ScheduleBatch), `forwards` (which route
a Forward takes), `speculation` (the engine's own preparing functions), `padding`, `cost`, `stand_ins`.
Releases 0.5.6 to 0.5.22 differ from 0.5.23 in `capabilities`, `boot`, `absent_packages` and a few `hasattr`.
"""
