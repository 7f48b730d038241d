"""The server of completions that the load test's remote engine asks, in a process of its own; prints its port.

Answers with the word of the document that it was asked about, so that crossed replies are noticed.
"""

from __future__ import annotations

import asyncio
import re
import sys

from toy_server import Reply, Request, ToyServer

PIECES = 8
PAUSE_S = 0.05  # before each piece: a 7B model on a GPU with others on it


async def answer(request: Request, reply: Reply) -> None:
    prompt = request.payload["prompt"]
    text = prompt if isinstance(prompt, str) else "".join(chr(token) for token in prompt if token < 0x110000)
    words = re.findall(r'check_(\w+)\("', text)
    await reply.start_stream()
    for number in range(min(PIECES, request.payload["max_tokens"])):
        await asyncio.sleep(PAUSE_S)
        if request.gone.is_set():
            return
        piece = f" {words[-1]}_{number}" if words else " no_word"
        reason = "stop" if number == PIECES - 1 else None
        await reply.event({"choices": [{"index": 0, "text": piece, "finish_reason": reason}]})
    await reply.end_stream()


if __name__ == "__main__":
    toy = ToyServer()
    toy.wrong = answer
    print(toy.start().port, flush=True)
    sys.stdin.read()  # until whoever started it goes
    toy.close()
