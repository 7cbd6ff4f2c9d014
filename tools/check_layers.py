#!/usr/bin/env python3
"""Fails where an #include points up or across the layers (architecture.md): file, line and what is wrong.

Reads the quoted includes of src/, cli/ and python/. Folders of one row never include one another; `runtime`
besides sees nothing of `graph`, not even through another header. Standard library only.
"""
import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
ROWS = [
    ["base"],
    ["graph", "kernels"],
    ["model", "autodiff", "passes", "plan", "reference"],
    ["runtime", "compile", "io", "observe"],
    ["train", "infer", "migrate"],
    ["cli", "python"],
]
LAYER = {folder: row for row, folders in enumerate(ROWS, 1) for folder in folders}
NEVER_REACHED = {"runtime": "graph"}
INCLUDE = re.compile(r'\s*#\s*include\s+"([^"]+)"')


def folder_of(path):
    """The folder of the table that a file belongs to. src/*.cc and src/*.h are `compile`."""
    parts = path.relative_to(ROOT).parts
    if parts[0] == "src":
        return parts[1] if len(parts) > 2 else "compile"
    return parts[0]


def resolve(path, name):
    for base in (ROOT / "src", path.parent):
        if (base / name).is_file():
            return (base / name).resolve()
    return None


def includes(path):
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        match = INCLUDE.match(line)
        if match:
            yield number, match.group(1)


def check_file(path):
    own = folder_of(path)
    where = path.relative_to(ROOT)
    if own not in LAYER:
        return [f"{where}:1: folder {own} is not in the table of layers"]
    problems = []
    for number, name in includes(path):
        if name.startswith("embedded/"):  # made by the build: texts without includes (cmake/LaminaEmbed.cmake)
            continue
        target = resolve(path, name)
        if target is None:
            problems.append(f"{where}:{number}: \"{name}\" is no file under src/")
            continue
        other = folder_of(target)
        if other != own and LAYER.get(other, 99) >= LAYER[own]:
            problems.append(f"{where}:{number}: {own} (row {LAYER[own]}) includes {other} (row {LAYER.get(other, '?')})")
    return problems


def check_reach(path, forbidden):
    """A chain of includes from `path` into the folder `forbidden`, as one problem."""
    seen, queue = {path}, [(path, [])]
    while queue:
        current, chain = queue.pop()
        for _, name in includes(current):
            target = resolve(current, name)
            if target is None or target in seen:
                continue
            seen.add(target)
            steps = chain + [name]
            if folder_of(target) == forbidden:
                return [f"{path.relative_to(ROOT)}:1: reaches {forbidden}: {' -> '.join(steps)}"]
            queue.append((target, steps))
    return []


def main():
    files = [p for top in ("src", "cli", "python") for end in ("*.h", "*.cc", "*.def")
             for p in sorted((ROOT / top).rglob(end))]
    problems = []
    for path in files:
        problems += check_file(path)
        forbidden = NEVER_REACHED.get(folder_of(path))
        if forbidden:
            problems += check_reach(path.resolve(), forbidden)
    print("\n".join(problems) if problems else f"check_layers: {len(files)} files, all includes point down")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
