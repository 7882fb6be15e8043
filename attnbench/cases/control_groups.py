"""The control groups that hold this process, which limit what it may have: versions 1 and 2."""

from __future__ import annotations

from pathlib import Path

PROC = Path("/proc")
CGROUP = Path("/sys/fs/cgroup")

_UNIFIED = "unified"
"""Where version 2 is mounted beside version 1."""


def control_groups(controller: str, proc: Path = PROC, cgroup: Path = CGROUP) -> list[Path]:
    """The folders of the groups that may limit ``controller`` ("cpu", "memory") here, innermost first.

    This process's own group and all those around it, as far as they are visible: inside a container the path
    may be one of the host's, and then only the root is there.
    """
    folders: list[Path] = []
    for line in read(proc / "self" / "cgroup").splitlines():
        _, controllers, path = (*line.split(":", 2), "", "", "")[:3]
        if not path.startswith("/"):
            continue
        if controllers and controller not in controllers.split(","):
            continue
        # Version 1 mounts the controllers that go together in one folder, and links to it from each name.
        names = (controllers, controller) if controllers else (_UNIFIED, "")
        roots = [root for root in (cgroup / name for name in dict.fromkeys(names)) if root.is_dir()]
        for root in roots[:1]:
            inner = root / path.lstrip("/")
            folders += [
                each for each in (inner, *inner.parents) if each.is_relative_to(root) and each.is_dir()
            ]
    return folders


def read(path: Path) -> str:
    """The text of a file of the system; "" where there is none. What is no text is replaced."""
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""


def whole_number(text: str) -> int | None:
    """The number that a file of the system holds; None where it says something else."""
    text = text.strip()
    return int(text) if text.isascii() and text.isdigit() else None
