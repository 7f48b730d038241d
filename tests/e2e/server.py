"""How the tests start a server: the installed program in a process of its own, on the embedded pair and the CPU."""

from __future__ import annotations

import os
import re
import sys
from typing import Any

COMMAND = [sys.executable, "-m", "lsp_server", "serve"]
TCP_COMMAND = [*COMMAND, "--tcp", "127.0.0.1:0"]
ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
# What every client asks for. Equal in all, because the clients of one server share its models.
OPTIONS: dict[str, Any] = {"device": "cpu", "deadlineMs": 60_000}  # a busy CI machine is no fault of the server
LISTENING = re.compile(r"listening on ([\d.]+):(\d+)")  # what it says on stderr, with --tcp and port 0
READY_S = 60.0  # cold, on two slow cores that do other things as well; measured and held to 30 s in test_lifecycle.py
REPLY_S = 20.0
