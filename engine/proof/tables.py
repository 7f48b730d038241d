"""The exact output law of the real `verify` on small tables: integrated over its random numbers, summed over the
guesses and compared with the target's own law.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product

import numpy as np
import torch

from engine.proof.cycles import DRAFTERS, largest_cycle_error
from engine.proof.integral import verdicts
from engine.proof.laws import Array, History, random_law
from engine.speculation import ROOT, Draft


@dataclass(frozen=True, slots=True)
class RuleCheck:
    """One acceptance rule on `tables` random tables: the largest difference from the target's law over all outputs."""

    rule: str
    tables: int
    largest_error: float


@dataclass(frozen=True, slots=True)
class WorkedExample:
    """One guess on p = [.2 .5 .3], q = [.6 .3 .1]. Each field has one number a token."""

    target: tuple[float, ...]
    draft: tuple[float, ...]
    accepted: tuple[float, ...]  # probability that the token is emitted as an accepted guess
    corrected: tuple[float, ...]  # … as the draw from the residual after a rejection
    emitted: tuple[float, ...]  # the sum: the target's law
    uncorrected: tuple[float, ...]  # what drawing from the target itself after a rejection would give: wrong


@dataclass(frozen=True, slots=True)
class ExactTables:
    rules: tuple[RuleCheck, ...]
    example: WorkedExample

    @property
    def largest_error(self) -> float:
        return max(check.largest_error for check in self.rules)

    @property
    def passed(self) -> bool:
        return self.largest_error < 1e-12


@dataclass(frozen=True, slots=True)
class Case:
    """A target and drafters that are random tables, and the shape of a draft.

    parents: as in Draft. certain: the token that a node always guesses; None where the guess is drawn. Each node has
    its own table, for every history; `unknown` gives some of its mass to an id that the target does not have.
    """

    vocab: int
    parents: tuple[int, ...]
    certain: tuple[int | None, ...]
    seed: int = 0
    unknown: bool = False

    @property
    def depth(self) -> int:
        return max((len(self.ancestors(node)) for node in range(len(self.parents))), default=0)

    def ancestors(self, node: int) -> list[int]:
        """The nodes from the root's child down to `node` itself; none for the root."""
        return [] if node == ROOT else [*self.ancestors(self.parents[node]), node]

    def target(self, history: History) -> Array:
        """p(· | history) [vocab]"""
        return random_law(self.vocab, (self.seed, 0, *history))

    def drafter(self, node: int, history: History) -> Array:
        """q(· | history) of one node: [vocab], or [vocab + 1] with the unknown id at the end."""
        key = (self.seed, 1 + node, *history)
        if not self.unknown and np.random.default_rng(key).random() < 0.2:
            return self.target(history)  # leaves no residual
        return random_law(self.vocab + self.unknown, key)

    def drafts(self) -> Iterator[tuple[Draft, float]]:
        """Every draft of this shape that can occur, with its probability."""
        drawn = [node for node, token in enumerate(self.certain) if token is None]
        for guesses in product(range(self.vocab + self.unknown), repeat=len(drawn)):
            by_node = dict(zip(drawn, guesses, strict=True))
            tokens = tuple(by_node[node] if token is None else token for node, token in enumerate(self.certain))
            laws = np.zeros((len(tokens), self.vocab + self.unknown))
            for node in drawn:
                laws[node] = self.drafter(node, self.history(tokens, self.parents[node]))
            weight = float(np.prod([laws[node, by_node[node]] for node in drawn]))
            if weight > 0:
                yield Draft(tokens, self.parents, torch.tensor(laws[:, : self.vocab]) if drawn else None), weight

    def history(self, tokens: Sequence[int], node: int) -> History:
        return tuple(tokens[ancestor] for ancestor in self.ancestors(node))

    def joint(self, history: History = ()) -> Array:
        """The target's law of the next tokens, up to one more than the draft's depth: [vocab, …]."""
        law = self.target(history)
        if len(history) == self.depth:
            return law
        return np.stack([law[token] * self.joint((*history, token)) for token in range(self.vocab)])


_CHAIN = (ROOT, 0, 1)
RULES = {
    "sampled chain": Case(3, _CHAIN, (None, None, None)),
    "certain tree": Case(5, (ROOT, ROOT, ROOT, 0, 0, 1, 3), (1, 4, 1, 0, 3, 2, 2)),
    "several sampled guesses": Case(3, (ROOT, ROOT, 0, 1), (None, None, None, None)),
    "sampled and certain guesses": Case(4, (ROOT, ROOT, ROOT, 0, 0, 2), (None, 2, None, 1, None, 0)),
    "guesses outside the vocabulary": Case(3, _CHAIN, (None, None, 99), unknown=True),
}


def exact_tables(
    tables: int = 8, seed: int = 0, report: Callable[[float], None] = lambda fraction: None
) -> ExactTables:
    """Every acceptance rule on `tables` random tables, and a cycle with every drafter on some of them; `report` hears
    the fraction that is done."""
    checks, parts = list[RuleCheck](), len(RULES) + len(DRAFTERS)
    for rule, shape in RULES.items():
        cases = [replace(shape, seed=seed + number) for number in range(tables)]
        checks.append(RuleCheck(rule, tables, max(largest_error(case) for case in cases)))
        report(len(checks) / parts)
    for name in DRAFTERS:
        few = math.ceil(tables / 4)  # they take seconds each
        errors = [largest_cycle_error(name, seed + number) for number in range(few)]
        checks.append(RuleCheck(f"a cycle of the decoder, {name}", few, max(errors)))
        report(len(checks) / parts)
    return ExactTables(tuple(checks), worked_example())


def largest_error(case: Case) -> float:
    """Of the probability of any output of `verify`, against the target's own law."""
    return float(np.abs(output_law(case) - case.joint()).max())


@torch.inference_mode()
def output_law(case: Case) -> Array:
    """The law of what `verify` emits, each output completed from the target to one length: [vocab, vocab, …].

    An output with an unknown id has no place in it: its mass will be missing.
    """
    law = np.zeros((case.vocab,) * (case.depth + 1))
    borders: list[float] = []
    for draft, weight in case.drafts():
        histories = [case.history(draft.tokens, node) for node in range(ROOT, len(draft))]
        p = torch.tensor(np.stack([case.target(history) for history in histories]))
        for verdict, volume in verdicts(p, draft, borders):
            emitted = (*(draft.tokens[node] for node in verdict.path), verdict.next_token)
            if max(emitted) >= case.vocab:
                continue
            law[emitted] += weight * volume * (case.joint(emitted) if len(emitted) <= case.depth else 1.0)
    return law


@torch.inference_mode()
def worked_example() -> WorkedExample:
    """The example on which a wrong correction is plain to see."""
    p, q = np.array([0.2, 0.5, 0.3]), np.array([0.6, 0.3, 0.1])
    rows, laws = torch.tensor(np.stack([p, p])), torch.tensor(q)[None]
    accepted, corrected = np.zeros(3), np.zeros(3)
    for guess in range(3):
        draft = Draft.chain([guess], laws)
        for verdict, volume in verdicts(rows, draft, []):
            if verdict.path:
                accepted[guess] += q[guess] * volume
            else:
                corrected[verdict.next_token] += q[guess] * volume
    uncorrected = accepted + (1 - accepted.sum()) * p
    laws_in_order = (p, q, accepted, corrected, accepted + corrected, uncorrected)
    return WorkedExample(*(tuple(law.tolist()) for law in laws_in_order))
