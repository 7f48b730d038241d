"""The engine over HTTP: an existing server computes, vLLM or any with OpenAI's completions. Needs no torch."""

from engine.remote.errors import RemoteError
from engine.remote.service import RemoteEngine

__all__ = ["RemoteEngine", "RemoteError"]
