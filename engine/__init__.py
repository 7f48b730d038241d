"""Specter's engine: text in, text out; it knows no editor and no protocol."""

import os

# Read by OpenMP when torch is loaded: for how long a thread spins before it sleeps. For ever, by default, and where
# other programs run, each of a forward's hundred meetings of threads then lasts until the scheduler changes its mind.
# Beside three busy programs on two cores, 128 tokens took 1,472 ms so, and 475 with this bound; a token 50 and 40 (22
# with one thread). `python -m engine.bench.threads --beside 3`, with GOMP_SPINCOUNT=infinite for the former.
os.environ.setdefault("GOMP_SPINCOUNT", "10000")
