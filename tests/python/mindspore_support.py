"""Tasks for MindSpore's interpreter (mindspore_child.py), which is never that of the tests: torch and MindSpore want different
numpys. Tasks of one call run side by side."""
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parents[2]
CHILD = Path(__file__).with_name("mindspore_child.py")


def mindspore_python():
    local = ROOT / ".venv" / "mindspore"
    whole = (local / "requirements.sha256").exists()
    return os.environ.get("LAMINA_MINDSPORE_PYTHON") or (str(local / "bin" / "python") if whole else None)


def run_children(tasks):
    """tasks: (name, folder, task). Ends with all of them; what one says is in folder/out.json."""
    environment = dict(os.environ, GLOG_v="3", PYTHONDONTWRITEBYTECODE="1")
    children = []
    for name, folder, task in tasks:
        (folder / "task.json").write_text(json.dumps(task))
        command = [mindspore_python(), str(CHILD), name, str(folder)]
        with open(folder / "log.txt", "wb") as log:
            children.append((folder, subprocess.Popen(command, stdout=log, stderr=log, cwd=folder, env=environment)))
    failed = []
    for folder, child in children:
        if child.wait(timeout=500) != 0:
            failed.append((folder / "log.txt").read_text(errors="replace")[-2000:])
    assert not failed, "\n".join(failed)
    return [json.loads((folder / "out.json").read_text()) for folder, _ in children]


def arrays(path):
    with np.load(path) as file:
        return dict(file)
