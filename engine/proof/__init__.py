"""The proof of losslessness, run on the engine's own code: exact tables, greedy equality, first-token frequencies."""

from engine.proof.first_tokens import LAWS, PROMPTS, FirstTokens, TokenFrequency, first_tokens
from engine.proof.greedy import Difference, GreedyEquality, cut_holes, greedy_equality
from engine.proof.plot import plot
from engine.proof.tables import ExactTables, RuleCheck, WorkedExample, exact_tables

__all__ = [
    "LAWS",
    "PROMPTS",
    "Difference",
    "ExactTables",
    "FirstTokens",
    "GreedyEquality",
    "RuleCheck",
    "TokenFrequency",
    "WorkedExample",
    "cut_holes",
    "exact_tables",
    "first_tokens",
    "greedy_equality",
    "plot",
]
