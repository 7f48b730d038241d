"""The proof of losslessness, run on the engine's own code: exact tables, greedy equality, first-token frequencies."""

from engine.proof.frequencies import LAWS, PROMPTS, FirstTokens, TokenFrequency, first_tokens
from engine.proof.goodness import Fit
from engine.proof.greedy import Difference, GreedyEquality, cut_holes, greedy_equality
from engine.proof.picture import plot
from engine.proof.tables import ExactTables, RuleCheck, WorkedExample, exact_tables

__all__ = [
    "LAWS",
    "PROMPTS",
    "Difference",
    "ExactTables",
    "FirstTokens",
    "Fit",
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
