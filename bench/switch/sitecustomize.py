"""Run by Python at its start in a server of `bench.live_recording`: recorders that come and go, then what the
recorder's own file of this name does."""

import importlib
import os
import runpy

importlib.import_module("bench.switch.recorders").start()
folder = os.environ.pop("ROPECHECK_RECORD")  # this file has started the recorders
runpy.run_path(os.environ["BENCH_NEXT"])
os.environ["ROPECHECK_RECORD"] = folder
