"""``--html``, ``--csv`` and ``--markdown`` of ``report``: the records written to files too."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from attnbench.cli.loudness import note
from attnbench.cli.options import decorated
from attnbench.types.errors import BadInput

if TYPE_CHECKING:
    from attnbench.reports.judged import Judged
    from attnbench.reports.run import Run

Command = TypeVar("Command", bound=Callable[..., Any])

_OPTIONS = (
    click.option(
        "--html", type=click.Path(path_type=Path), metavar="FILE",
        help="Write a page to this file too: sentences, tables, charts. It loads nothing from anywhere.",
    ),
    click.option(
        "--csv", type=click.Path(path_type=Path), metavar="FILE",
        help="Write all columns of the records to this file too.",
    ),
    click.option(
        "--markdown", type=click.Path(path_type=Path), metavar="FILE",
        help="Write the table as Markdown to this file too.",
    ),
)  # fmt: skip


def file_options(command: Command) -> Command:
    """Give a command the options that :class:`Files` is made of."""
    return decorated(command, _OPTIONS)


@dataclass(frozen=True)
class Files:
    """The files to write, None for those that aren't asked for."""

    html: Path | None = None
    csv: Path | None = None
    markdown: Path | None = None

    def check(self, runs: Sequence[Path]) -> None:
        """Raise :class:`BadInput` where one can't be written or made, is named twice, or is one of ``runs``.

        Before all else, so that nothing is printed or overwritten in vain.
        """
        from attnbench.runner.run_file import expand

        named = [path for path in (self.html, self.csv, self.markdown) if path is not None]
        read = {file.resolve() for file in expand(list(runs))} if named else set()
        for path in named:
            if path.is_dir():
                raise BadInput(f"{str(path)!r} is a folder: name a file to write")
            if not path.parent.is_dir():
                raise BadInput(f"{str(path)!r}: there is no folder {str(path.parent)!r}")
            if path.resolve() in read:
                raise BadInput(f"{str(path)!r} is one of the runs: name another file to write")
            if sum(path.resolve() == other.resolve() for other in named) > 1:
                raise BadInput(f"{str(path)!r} is named for two formats: give each a file of its own")
        if self.html is not None:
            from attnbench.reports.html.page import check_packages

            check_packages()

    def write(self, run: Run, *, trace: bool) -> None:
        """Write the files.

        Raises:
            BadInput: a file cannot be written, or a package that a page needs is not installed.
        """
        from attnbench.reports.render import render

        if self.csv is not None:
            _write(self.csv, render(run.judged, "csv"))
        if self.markdown is not None:
            _write(self.markdown, _markdown(run, trace=trace))
        if self.html is not None:
            from attnbench.reports.html.page import page

            _write(self.html, page(run))


def by_run(run: Run) -> Iterator[tuple[str, list[Judged]]]:
    """Each run of several: a line that says what it is, and its records."""
    for path, manifest, judged in zip(run.paths, run.manifests, run.judged_by_file, strict=True):
        yield f"{path}: {manifest.started}, {manifest.environment.get('cpu')}", judged


def _markdown(run: Run, *, trace: bool) -> str:
    """As ``--format markdown`` prints it: a table for each run, under a line where there are several."""
    from attnbench.reports.render import render

    if len(run.paths) == 1:
        return render(run.judged, "markdown", trace=trace)
    parts = (f"{head}\n\n{render(judged, 'markdown', trace=trace)}" for head, judged in by_run(run))
    return "\n".join(parts)


def _write(target: Path, text: str) -> None:
    try:
        target.write_text(text, encoding="utf-8")
    except OSError as failure:
        raise BadInput(f"can't write {str(target)!r}: {failure.strerror}") from failure
    note(f"written to {target}")
