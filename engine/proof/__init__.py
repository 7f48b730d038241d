"""The proof of losslessness, run on the engine's own code: exact tables, greedy equality, first-token frequencies."""

from engine.proof.equality import LIBRARY, Difference, Equality, cut_holes, equality, with_certain_guesses
from engine.proof.frequencies import LAWS, PROMPTS, SAMPLED, FirstTokens, TokenFrequency, first_tokens
from engine.proof.goodness import Fit
from engine.proof.picture import plot
from engine.proof.tables import ExactTables, RuleCheck, WorkedExample, exact_tables

__all__ = [
    "LAWS",
    "LIBRARY",
    "PROMPTS",
    "SAMPLED",
    "Difference",
    "Equality",
    "ExactTables",
    "FirstTokens",
    "Fit",
    "RuleCheck",
    "TokenFrequency",
    "WorkedExample",
    "cut_holes",
    "equality",
    "exact_tables",
    "first_tokens",
    "plot",
    "with_certain_guesses",
]
