"""The only place that builds the models and joins the parts."""

from __future__ import annotations

import logging
from collections import deque
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

import torch
from torch import Tensor
from transformers.utils import logging as transformers_logging

from engine import embedded
from engine.adaptation import Learner, Weights, learner
from engine.config import AUTO, EMBEDDED, ConfigError, DrafterName, EngineConfig, MemoryShortError
from engine.costs import Costs
from engine.devices import device_for
from engine.drafters import Drafter, trained
from engine.drafters.eagle import EagleDrafter, EagleHead
from engine.drafters.heads import Heads, HeadsDrafter
from engine.drafters.lookahead import LookaheadDrafter, NGramPool
from engine.drafters.lookup import LookupDrafter
from engine.drafters.merged import MergedDrafter
from engine.drafters.small_model import SmallModelDrafter
from engine.drafters.surroundings import Markers
from engine.drafters.workspace import WorkspaceDrafter
from engine.fast_llama import FastLlamaRunner
from engine.identity import identity
from engine.local_models import is_here
from engine.model import CachedModel, vocabulary_size
from engine.pairs import KnownPair, fitting, known_pair
from engine.policy import DraftPolicy
from engine.prefix_store import PrefixStore
from engine.prompt import PromptBuilder, Tokenizer
from engine.record import Completion
from engine.request import CompletionRequest
from engine.sources import Key, Report, is_embedded, prepare, sources
from engine.threads import ThreadedRunner
from engine.workspace_index import WorkspaceIndex

log = logging.getLogger(__name__)

# Most accepted tokens per millisecond on the embedded pair (README, "Measured"); the int8 product jumps after width 4.
_DRAFT_LENGTH = 3
# A longer prompt costs a CPU more time to the first text than it gains in quality.
_CPU_CONTEXT, _GPU_CONTEXT = 1024, 8192
_CPU_LONGEST, _GPU_LONGEST = 8, 16  # guesses that a policy may find worth their place
# Of documents that are not at hand: five full prompts of the embedded pair, and of a 7B model four.
_CPU_CACHE_MB, _GPU_CACHE_MB = 128, 2048
_RECENT, _RECENT_CONTEXT = 4, 80  # completions, and characters before each


@dataclass(frozen=True, slots=True)
class LoadedPair:
    """Everything one completion needs. The models' caches are shared: one completion at a time."""

    name: str
    device: str
    dtype: str
    tokenizer: Tokenizer
    prompts: PromptBuilder
    target: CachedModel
    draft: CachedModel | None
    drafter_name: DrafterName  # never "auto"
    draft_length: int  # the most guesses a cycle, without a policy
    policy: DraftPolicy | None  # None: always that many
    context: int  # most tokens of prompt and completion together
    longest_draft: int = 8  # with a policy
    heads: Heads | None = None
    eagle: EagleHead | None = None
    learner: Learner | None = None
    target_source: str = ""
    notice: str = ""  # what the user should know of how it was loaded
    workspace: WorkspaceIndex = field(default_factory=WorkspaceIndex, repr=False)
    recent: deque[list[int]] = field(default_factory=lambda: deque(maxlen=_RECENT), repr=False)  # last completions
    ngrams: NGramPool = field(default_factory=NGramPool, repr=False)  # of the drafter lookahead

    @property
    def end_tokens(self) -> frozenset[int]:
        """Those that the models can say: a tokenizer may have special tokens without a row in the embedding."""
        return frozenset(token for token in self.prompts.end_tokens if token < self.target.vocab)

    @property
    def reads_other_files(self) -> bool:
        """Whether the target was trained to see pieces of other files before the document: its family has more for
        them than comments, and its tokenizer configuration does not say `"other_files": false`, as a checkpoint's may
        that has the family's markers and never saw them used."""
        parts = self.prompts.format.header.parts
        shown = any(part.of == "other" and "{commented}" not in part.template for part in parts)
        return shown and bool(self.tokenizer.init_kwargs.get("other_files", True))

    @property
    def most_guesses(self) -> int:
        """In one cycle."""
        return self.draft_length if self.policy is None else self.longest_draft

    def forget(self) -> None:
        """Empties both models' caches."""
        self.target.forget()
        if self.draft is not None:
            self.draft.forget()

    def remember(self, request: CompletionRequest, completion: Completion) -> None:
        """A completion is worth looking into: after a few keystrokes its rest is mostly right."""
        before = self.prompts.plain(request.prefix[-_RECENT_CONTEXT:])
        self.recent.append([*before, *completion.token_ids])

    def drafter(self, request: CompletionRequest | None = None) -> Drafter | None:
        """A fresh drafter for one completion; None decodes plainly."""
        markers = Markers(self.end_tokens, *self.prompts.fim_markers)
        model = None if self.draft is None else SmallModelDrafter(self.draft, self.end_tokens)
        workspace = WorkspaceDrafter(self.workspace, markers, request.document if request is not None else "")
        lookup = LookupDrafter(markers, tuple(self.recent))
        match self.drafter_name:
            case "lookup":
                return lookup
            case "workspace":
                return workspace
            case "lookahead":
                return LookaheadDrafter(self.ngrams)
            case "model":
                return model
            case "heads" | "blockwise" if self.heads is not None:
                return HeadsDrafter(self.heads, self.target, tree=self.drafter_name == "heads")
            case "eagle" if self.eagle is not None:
                return EagleDrafter(self.eagle, self.target)
            case "merged" if model is not None and request is not None and request.sampling.repeatable:
                # What draws of the model give depends on what was guessed beside them, and so on other files.
                return MergedDrafter(LookupDrafter(markers), None, model)
            case "merged":
                return MergedDrafter(lookup, workspace, model)
        return None


def load(config: EngineConfig, report: Report = lambda *_: None) -> LoadedPair:
    """Loads the pair that the configuration names, or what works beside programs that have the GPU's memory. Raises
    ConfigError for whatever cannot work."""
    try:
        return _load(config, report)
    except (MemoryShortError, torch.OutOfMemoryError) as error:
        log.warning("%s", str(error).partition("\n")[0])
    return load_small(config, report)


def load_small(config: EngineConfig, report: Report = lambda *_: None) -> LoadedPair:
    """The embedded pair on the CPU, where the GPU's memory does not do for what was configured."""
    if torch.cuda.is_available():
        torch.cuda.empty_cache()  # what was loaded before it
    without = {"heads": None, "eagle": None, "drafter": "auto", "dtype": "auto"}  # made for other models
    pair = _load(config.replace(pair=EMBEDDED, target=None, draft=None, device="cpu", **without), report)
    return replace(pair, notice=f"the GPU's memory does not do for {_named(config)}: the embedded pair on the CPU")


def _named(config: EngineConfig) -> str:
    return config.target or ("the embedded pair" if config.pair == EMBEDDED else config.pair)


def _load(config: EngineConfig, report: Report) -> LoadedPair:
    transformers_logging.disable_progress_bar()
    transformers_logging.set_verbosity_error()  # what matters is raised; the rest would garble the terminal
    device = device_for(config.device)
    prepare(config, report)
    chosen = best_pair_here(device) if config.target is None and config.pair == AUTO else None
    name, target_source, draft_source = sources(config, chosen)
    report(0.0, f"loading {name}")
    files = _trained(config, target_source)
    loader = _Loader(config, device)
    target, tokenizer = loader.model("target", target_source)
    ends = loader.ends
    draft = None
    if draft_source is not None:
        report(0.7, "loading the draft model")
        draft, draft_tokenizer = loader.model("draft", draft_source)
        _require_same_tokens(tokenizer, draft_tokenizer, target_source, draft_source)
    try:
        prompts = PromptBuilder(tokenizer, ends)
    except LookupError:
        raise ConfigError(
            "target",
            f"{target_source} has no fill-in-the-middle tokens; choose a code model trained for it (`specter pairs`)",
        ) from None
    report(1.0, "loaded")
    context = _CPU_CONTEXT if device.type == "cpu" else _GPU_CONTEXT
    if cache := _cache_bytes(config, device):
        store = PrefixStore(cache)
        for model in (target, draft):
            if model is not None:
                model.shelf = store.shelf()
    length = _DRAFT_LENGTH if config.draft_length == "auto" else config.draft_length
    return LoadedPair(
        name=name,
        device=_describe(device),
        dtype=loader.dtype_name,
        tokenizer=tokenizer,
        prompts=prompts,
        target=target,
        draft=draft,
        drafter_name=_drafter_name(config, draft),
        draft_length=length,
        policy=DraftPolicy(_costs(device, loader.dtype_name)) if config.draft_length == "auto" else None,
        context=min(context, target.window),
        longest_draft=_CPU_LONGEST if device.type == "cpu" else _GPU_LONGEST,
        heads=Heads.load(*files["heads"], target) if "heads" in files else None,
        eagle=EagleHead.load(*files["eagle"], target) if "eagle" in files else None,
        learner=loader.learner(draft) if config.adaptation and draft is not None else None,
        target_source=target_source,
    )


def _trained(config: EngineConfig, target: str) -> dict[trained.Kind, tuple[Path, dict[str, Tensor]]]:
    """The files of trained drafters, read before the models are loaded: what is wrong with them is said at once."""
    given: dict[trained.Kind, str | None] = {"heads": config.heads, "eagle": config.eagle}
    paths = {kind: Path(file).expanduser() for kind, file in given.items() if file}
    return {kind: (path, trained.read(kind, path, identity(target))) for kind, path in paths.items()}


def best_pair_here(device: torch.device) -> KnownPair:
    """The largest pair in the Hugging Face cache that fits the GPU's free memory; else, and on a CPU, the embedded."""
    if device.type == "cuda":
        torch.cuda.empty_cache()  # what an engine before this one had is free, too
        free, _ = torch.cuda.mem_get_info()
        for pair in fitting(free / 1e9):
            if is_here(pair):
                return pair
    return known_pair(EMBEDDED)


def better_pair(than: str) -> KnownPair | None:
    """The largest pair that would fit the whole GPU, if it is larger than this one and not on this machine."""
    if not torch.cuda.is_available():
        return None
    _, total = torch.cuda.mem_get_info()
    best = next(iter(fitting(total / 1e9)), None)
    if best is None or is_here(best) or (than != EMBEDDED and known_pair(than).target.billions >= best.target.billions):
        return None
    return best


def _cache_bytes(config: EngineConfig, device: torch.device) -> int:
    default = _CPU_CACHE_MB if device.type == "cpu" else _GPU_CACHE_MB
    return (default if config.cache_mb == "auto" else config.cache_mb) * 2**20


def _drafter_name(config: EngineConfig, draft: CachedModel | None) -> DrafterName:
    plain = config.drafter == "auto" and config.chosen_drafter == "merged" and draft is None and config.draft == "none"
    return "none" if plain else config.chosen_drafter


def _describe(device: torch.device) -> str:
    return torch.cuda.get_device_name(device) if device.type == "cuda" else "cpu"


class _Loader:
    """Loads models for one configuration and device."""

    def __init__(self, config: EngineConfig, device: torch.device) -> None:
        self._device = device
        self._wanted = config.dtype
        self.ends: tuple[int, ...] = ()  # what the model loaded last says to stop at
        self.dtype_name = config.dtype if config.dtype != "auto" else best_dtype(device)
        self._own: tuple[FastLlamaRunner, Weights] | None = None  # the embedded draft, if it was loaded

    def model(self, key: Key, source: str) -> tuple[CachedModel, Tokenizer]:
        model, tokenizer = self._model(key, source)
        if self._device.type == "cpu":
            model.runner = ThreadedRunner(model.runner)
        return model, tokenizer

    def learner(self, draft: CachedModel) -> Learner | None:
        """What teaches this draft, which was loaded last; None if it is not the embedded one on a CPU."""
        if self._own is None:
            log.warning("adaptation: only the embedded draft on a CPU learns; `specter train draft` distils another")
            return None
        runner, weights = self._own
        return learner(embedded.shape("draft"), weights, runner, draft)

    def _model(self, key: Key, source: str) -> tuple[CachedModel, Tokenizer]:
        if is_embedded(source) and self._device.type == "cpu":
            return self._embedded(key)
        from engine import checkpoints  # seconds

        dtype = getattr(torch, self.dtype_name)
        if is_embedded(source):
            return checkpoints.load_embedded(key, self._device, dtype)
        model, tokenizer, self.ends = checkpoints.load_checkpoint(key, source, self._device, dtype)
        return model, tokenizer

    def _embedded(self, role: Key) -> tuple[CachedModel, Tokenizer]:
        """The embedded model on a CPU, without transformers' modelling code."""
        if self._wanted == "auto":
            self.dtype_name = "bfloat16"  # int8 products on any processor, so always the cheapest
        exact = self.dtype_name == "float32"
        weights = embedded.weights(role) if exact else embedded.stored_weights(role)
        tokenizer = embedded.tokenizer()
        runner = FastLlamaRunner(embedded.shape(role), weights, same_at_any_width=role == "target")
        if role == "draft":
            self._own = runner, weights
        return CachedModel(runner, vocabulary_size(tokenizer.get_vocab())), tokenizer


def _require_same_tokens(target: Tokenizer, draft: Tokenizer, target_source: str, draft_source: str) -> None:
    """Ids must mean the same to both models; padding of the embedding may differ."""
    ours, theirs = target.get_vocab(), draft.get_vocab()
    if ours != theirs:
        different = len(set(ours.items()) ^ set(theirs.items()))
        raise ConfigError(
            "draft",
            f"{draft_source} and {target_source} have different tokenizers ({different} entries differ); choose a "
            "draft of the same family (`specter pairs`) or --draft none",
        )


def _costs(device: torch.device, dtype: str) -> Costs:
    """Before anything was measured: a GPU reads the weights either way; on a CPU arithmetic counts (README)."""
    if device.type == "cuda":
        return Costs([1 + 0.01 * more for more in range(9)], draft_ratio=0.2)
    if dtype == "bfloat16":
        return Costs([1, 1.2, 1.35, 1.5, 2.5, 2.55, 2.6, 2.65, 2.7], draft_ratio=0.22)
    return Costs([1, 1.5, 1.8, 2.1, 2.1, 2.15, 2.15, 2.2, 2.2], draft_ratio=0.3)


def best_dtype(device: torch.device) -> Literal["float32", "bfloat16"]:
    """bfloat16 where the processor computes in it; elsewhere its products are emulated and slower than float32."""
    if device.type == "cuda":
        return "bfloat16"
    supported = getattr(torch.cpu, "_is_avx512_bf16_supported", lambda: False)
    return "bfloat16" if supported() else "float32"
