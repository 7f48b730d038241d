"""What commands show on a terminal while they work; nothing of it reaches a pipe or a file."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from engine.config import ConfigError

if TYPE_CHECKING:  # torch takes seconds to import
    from rich.console import Console

    from engine.config import EngineConfig
    from engine.loading import LoadedPair


def console() -> Console:
    """For stdout. Colours on a terminal only; as wide as that, else 80 columns."""
    from rich.console import Console

    return Console(highlight=False, emoji=False, markup=False)


@contextmanager
def working(what: str) -> Iterator[Callable[[str], None]]:
    """Says on a terminal's stderr what takes so long; yields a function that says the next thing."""
    from rich.console import Console

    terminal = Console(stderr=True)
    if not terminal.is_terminal:
        yield lambda text: None
        return
    with terminal.status(what) as status:
        yield lambda text: status.update(text)


def load_pair(config: EngineConfig) -> LoadedPair:
    """Loads the models, which takes seconds, as does importing torch. Raises ConfigError, as soon as it can."""
    if config.server_url is not None:
        raise ConfigError("server_url", "this command is about models on this machine; leave it out")
    with working("starting") as say:
        from engine.sources import prepare

        prepare(config, lambda fraction, what: say(f"{what} {fraction:.0%}"))
        from engine.devices import device_for  # torch: seconds

        device_for(config.device)
        from engine.loading import load  # transformers: more seconds

        return load(config, lambda _, what: say(what))
