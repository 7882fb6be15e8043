"""``attnbench new``: a complete package for a plugin of one's own."""

from __future__ import annotations

from pathlib import Path

import click

from attnbench.cli.output import note, say
from attnbench.cli.parameters import load_plugins


@click.command("new")
@click.argument("name")
@click.option(
    "--into", type=click.Path(path_type=Path), metavar="FOLDER", default=Path(), show_default="where you are",
    help="Create the package in this folder.",
)  # fmt: skip
def command(name: str, into: Path) -> None:
    """Write a complete package for a backend of your own: code, tests, README, pyproject, CI.

    Its backend is correct and works at once; replace it by your kernel. NAME is the name of the backend; the
    folder and the distribution are attnbench-NAME. Existing files are never overwritten. The next steps are
    printed to stdout.

    \b
    attnbench new my-kernel
    attnbench new my-kernel --into ~/projects
    """
    import shlex

    from attnbench.starter.package import (
        attnbench_source,
        in_repository,
        names_of,
        next_lines,
        package,
        write_folder,
    )
    from attnbench.types.errors import BadInput

    names = names_of(name)
    there = load_plugins().backends.get(names.backend)
    if there is not None and there.source.distribution != names.distribution:
        raise BadInput(f"name {name!r}: {there.source} already brings a backend {names.backend!r}")
    folder = into.expanduser() / names.distribution
    files = package(names)
    write_folder(folder, files)
    note(f"wrote {folder}: {', '.join(files)}")
    steps = next_lines(names, shlex.quote(str(folder)), attnbench_source(), kept=in_repository(folder))
    # A comment for the shell, so that stdout can be pasted whole.
    say("\n".join(["# Next steps:", *steps]))
