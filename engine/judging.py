"""All that `verify` asks of the laws of a chain, or of a tree of certain guesses, in one question to the device.

On a GPU each answer is waited for, which costs as much as many rows of a vocabulary: so every row is asked for at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from engine.on_device import Later, to_device, to_host
from engine.sampling import Noise, draw_rows


class Answers(NamedTuple):
    """sampled, accepted: of each guess; whether it has a law, and then whether it comes true if all before it do.
    drawn: of each row, the token if what has a law does not come true."""

    sampled: list[bool]
    accepted: list[bool]
    drawn: list[int]


def ask(
    p: Tensor, tokens: Sequence[int], parents: Sequence[int], probs: Tensor | None, noise: Noise, position: int
) -> Answers:
    """As `engine.speculation.verify` takes them; with laws, a chain. Raises FloatingPointError if p is no law."""
    count = len(tokens)
    depths = [0]
    for parent in parents:
        depths.append(depths[parent + 1] + 1)
    numbers = [noise.at(position + depth) for depth in depths]
    accept, target = to_device(
        torch.tensor([[each.accept for each in numbers], [each.target for each in numbers]], dtype=torch.float64),
        p.device,
    )
    law, sampled = p, torch.zeros(count, dtype=torch.bool, device=p.device)
    accepted = sampled
    later = tokens.guessed if isinstance(tokens, Later) else None
    if probs is not None:
        guesses = tokens.there.long() if isinstance(tokens, Later) else to_device(tokens, p.device)
        sampled = probs.sum(dim=-1) != 0
        index = guesses.clamp(0, p.shape[-1] - 1)[:, None]
        q_of, p_of = probs.gather(1, index)[:, 0].double(), p[:count].gather(1, index)[:, 0].double()
        known = (guesses >= 0) & (guesses < p.shape[-1])
        accepted = sampled & known & (accept[:count] * q_of < p_of)
        left = (p[:count] - probs).clamp(min=0)
        mass = left.sum(dim=-1, keepdim=True)
        left = torch.where(sampled[:, None] & (mass > 0), left / mass, p[:count])
        law = torch.cat([left, p[count:]])
    drawn = draw_rows(law, target)
    sound = p.sum(dim=-1).isfinite().all()
    parts = [sound[None], sampled, accepted, drawn, *([] if later is None else [later.packed])]
    answers = to_host(torch.cat([part.double() for part in parts]))
    if later is not None:
        later.tell(answers[2 + 3 * count :])
    if not answers[0]:
        raise FloatingPointError("the model returned logits that are not finite")
    return Answers(
        [bool(answer) for answer in answers[1 : 1 + count]],
        [bool(answer) for answer in answers[1 + count : 1 + 2 * count]],
        [int(answer) for answer in answers[1 + 2 * count : 2 + 3 * count]],
    )
