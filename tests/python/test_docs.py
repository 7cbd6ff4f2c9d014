"""Every command and every line of Python of the documentation runs: the blocks of a page, in order, in a folder of its
own. Python blocks of a page share their names."""
import itertools
import os
import pathlib
import re
import subprocess
import sys

import pytest
from fused_support import library_path
from mindspore_support import NO_MINDSPORE, mindspore_python

ROOT = pathlib.Path(__file__).resolve().parents[2]
BLOCK = re.compile(r"^```(sh|python)\n(.*?)^```$", re.M | re.S)
PAGES = sorted(path for path in (ROOT / "docs").glob("*.md") if BLOCK.search(path.read_text(encoding="utf-8")))


def script_of(page):
    """A program that runs the page: neighbouring blocks of a language together."""
    lines = ["import subprocess, sys", "names = {'__name__': '__main__'}"]
    for language, blocks in itertools.groupby(BLOCK.findall(page.read_text(encoding="utf-8")), key=lambda block: block[0]):
        code = "".join(text for _, text in blocks)
        if language == "python":
            lines.append(f"exec(compile({code!r}, {page.name!r}, 'exec'), names)")
        else:
            lines.append(f"sys.stdout.flush(); subprocess.run(['bash', '-e', '-c', {code!r}], check=True)")
    return "\n".join(lines)


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.stem)
def test_commands_of_a_page_run(page, tmp_path):
    binary = pathlib.Path(os.environ["LAMINA_BINARY"]).resolve()
    environment = dict(os.environ, LAMINA_SOURCE=str(ROOT), LAMINA_TORCH_PYTHON=sys.executable,
                       PATH=f"{binary.parent}:{os.environ['PATH']}")
    if '"$LAMINA_MINDSPORE_PYTHON"' in page.read_text(encoding="utf-8"):
        if mindspore_python() is None:
            pytest.skip(NO_MINDSPORE)
        environment.update(LAMINA_MINDSPORE_PYTHON=mindspore_python(), LAMINA_MINDSPORE_OPS=str(library_path()))
    done = subprocess.run([sys.executable, "-c", script_of(page)], cwd=tmp_path, env=environment, capture_output=True,
                          text=True, timeout=600)
    assert done.returncode == 0, done.stderr[-2000:]


def test_there_are_pages():
    assert len(PAGES) >= 4
    assert {"python", "notebook"} <= {page.stem for page in PAGES if "```python" in page.read_text(encoding="utf-8")}
