"""Specter's engine: text in, text out; it knows no editor and no protocol."""

import os

# Read by OpenMP when torch is loaded. By default its threads wait by spinning, and where another program runs, each of
# a forward's hundred meetings of threads then lasts until the scheduler changes its mind: a token took 1,105 ms beside
# four busy programs on two cores, and takes 27 ms so (9.6 ms with one thread, see threads.py).
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
