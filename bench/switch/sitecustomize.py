"""Run by the recorder's own file of this name in a server of `bench.live_recording`: recorders that come and go."""

import importlib

importlib.import_module("bench.switch.recorders").start()
