"""``kprod template confluent-cloud``: a client's properties file to fill in.

Owns: the command, and where the files are (in this folder in a wheel, in conf/clients in a
checkout). Never: their content.
"""

from __future__ import annotations

import sys
from pathlib import Path

import typer

_SUFFIX = ".properties"


def template(name: str | None) -> None:
    """One by its name; None lists them."""
    files = _directory().glob(f"*{_SUFFIX}")
    known = {path.stem: path for path in sorted(files, key=lambda path: path.stem)}
    if name is None:
        sys.stdout.write("".join(f"{one}\n" for one in known))
        return
    path = known.get(name.removesuffix(_SUFFIX))
    if path is None:
        raise typer.BadParameter(
            f"there is no {name!r}; there are {', '.join(known)}", param_hint="NAME"
        )
    sys.stdout.write(path.read_text(encoding="utf-8"))


def _directory() -> Path:
    here = Path(__file__).resolve()
    installed = here.parent / "clients"
    return installed if installed.is_dir() else here.parents[2] / "conf" / "clients"
