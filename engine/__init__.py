"""Specter's engine: text in, text out; it knows no editor and no protocol."""

import os

# Read by OpenMP when torch is loaded: for how long a thread spins before it sleeps. For ever, by default, and where
# another program runs, each of a forward's hundred meetings of threads then lasts until the scheduler changes its mind:
# a token took 1,105 ms beside four busy programs on two cores. So, 24 ms beside three; on an idle machine 7.0 instead
# of 6.4 (and 15.6 with threads that sleep at once, OMP_WAIT_POLICY=PASSIVE).
os.environ.setdefault("GOMP_SPINCOUNT", "10000")
