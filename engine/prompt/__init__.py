"""From a request to the target's prompt: fill-in-the-middle layouts, token budgets, markers built by id."""

from engine.prompt.builder import EncodedPrompt, PromptBuilder
from engine.prompt.families import FAMILIES, Family, Order, detect
from engine.prompt.plain import PlainText, Tokenizer

__all__ = ["FAMILIES", "EncodedPrompt", "Family", "Order", "PlainText", "PromptBuilder", "Tokenizer", "detect"]
