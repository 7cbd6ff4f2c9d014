"""Tasks for MindSpore's interpreter (mindspore_child.py), which is never that of the tests: torch and MindSpore want different
numpys. Tasks of one call run side by side."""
import json
import os
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).resolve().parents[2]
CHILD = Path(__file__).with_name("mindspore_child.py")


def mindspore_python():
    local = ROOT / ".venv" / "mindspore"
    whole = (local / "requirements.sha256").exists()
    return os.environ.get("LAMINA_MINDSPORE_PYTHON") or (str(local / "bin" / "python") if whole else None)


NO_MINDSPORE = "no MindSpore: neither .venv/mindspore nor LAMINA_MINDSPORE_PYTHON"
needs_mindspore = pytest.mark.skipif(mindspore_python() is None, reason=NO_MINDSPORE)


def run_child(name, folder, task, child=CHILD, variables=None):
    """What the task answers, and the end of what MindSpore says where it failed."""
    (folder / "task.json").write_text(json.dumps(task))
    environment = dict(os.environ, GLOG_v="3", PYTHONDONTWRITEBYTECODE="1", **(variables or {}))
    done = subprocess.run([mindspore_python(), str(child), name, str(folder)], cwd=folder, env=environment, timeout=900,
                          capture_output=True, check=False)
    if done.returncode != 0:
        return None, done.stderr.decode(errors="replace")[-2000:]
    return json.loads((folder / "out.json").read_text()), ""


def run_children(tasks, **variables):
    """tasks: (name, folder, task), two at a time, with these variables of the environment. Their answers."""
    with ThreadPoolExecutor(2) as pool:
        answers = list(pool.map(lambda task: run_child(*task, variables=variables), tasks))
    assert not any(failure for _, failure in answers), "\n".join(failure for _, failure in answers)
    return [answer for answer, _ in answers]


def arrays(path):
    with np.load(path) as file:
        return dict(file)
