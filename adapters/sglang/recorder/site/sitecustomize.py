"""Run by Python at its start when this folder is on PYTHONPATH: watches the engine if a recording is asked for, and
runs the `sitecustomize` that this one hides. Without ROPECHECK_RECORD nothing is imported.
ROPECHECK_EMPTY: packages that a toy server imports and never calls. ROPECHECK_NATIVE: see `native`."""

import importlib
import importlib.machinery
import importlib.util
import os
import sys

if os.environ.get("ROPECHECK_RECORD"):
    importlib.import_module("ropecheck.record").start()

if os.environ.get("ROPECHECK_EMPTY"):
    absent = importlib.import_module("ropecheck.adapters.sglang.absent_packages")
    absent.stand_in_empty(*os.environ["ROPECHECK_EMPTY"].split(","))
    absent.install()

if os.environ.get("ROPECHECK_NATIVE"):
    importlib.import_module("ropecheck.adapters.sglang.native").install()

_here = os.path.dirname(os.path.abspath(__file__))  # noqa: PTH100, PTH120 - pathlib costs every process its import
_others = [path for path in sys.path if os.path.abspath(path or ".") != _here]  # noqa: PTH100
_spec = importlib.machinery.PathFinder.find_spec("sitecustomize", _others)
if _spec is not None and _spec.loader is not None:
    _spec.loader.exec_module(importlib.util.module_from_spec(_spec))
