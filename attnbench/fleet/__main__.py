"""The process of a task: a command of attnbench, or the facts of this machine as JSON. Ends with its parent."""

from __future__ import annotations

import os
import sys

import msgspec

from attnbench.ipc.process import die_with_parent


def main() -> None:
    """Run the command that the arguments are, after the number of the parent process."""
    parent, *words = sys.argv[1:]
    die_with_parent(int(parent))
    sys.argv[1:] = words
    if words[0] == "facts":
        from attnbench.fleet.facts import facts_here

        # Plugins may print.
        with os.fdopen(os.dup(1), "wb") as out:
            os.dup2(2, 1)
            out.write(msgspec.json.encode(facts_here(words[1:])))
        return
    from attnbench.__main__ import main as command

    command()


if __name__ == "__main__":
    main()
