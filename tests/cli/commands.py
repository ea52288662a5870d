"""The tree of commands, as a table."""

from __future__ import annotations

from typing import Any

import typer


def commands_of(app: typer.Typer) -> dict[tuple[str, ...], Any]:
    """Every command by its words behind ``kprod``."""

    def below(words: tuple[str, ...], command: Any) -> dict[tuple[str, ...], Any]:
        inner = getattr(command, "commands", None)
        if inner is None:
            return {words: command}
        return {k: v for name, one in inner.items() for k, v in below((*words, name), one).items()}

    return below((), typer.main.get_command(app))
