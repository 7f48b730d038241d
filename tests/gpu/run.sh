#!/bin/sh
# On a GPU machine with torch and transformers only, without network, in under 8 minutes; one JSON document is the last
# line, and the exit code is not 0 where a bound fails. `--cpu-rehearsal` runs all of it with tiny sizes.
cd "$(dirname "$0")/../.." || exit 2
PYTHONPATH=. HF_HUB_OFFLINE=1 exec "${PYTHON:-python3}" -m tests.gpu.check "$@"
