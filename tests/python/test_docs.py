"""Every shell command of the documentation runs: the blocks of a page, in order, in a folder of its own."""
import os
import pathlib
import re
import subprocess

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
PAGES = sorted(path for path in (ROOT / "docs").glob("*.md") if "```sh" in path.read_text(encoding="utf-8"))


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.stem)
def test_commands_of_a_page_run(page, tmp_path):
    blocks = re.findall(r"^```sh\n(.*?)^```$", page.read_text(encoding="utf-8"), re.M | re.S)
    binary = pathlib.Path(os.environ["LAMINA_BINARY"]).resolve()
    environment = dict(os.environ, LAMINA_SOURCE=str(ROOT), PATH=f"{binary.parent}:{os.environ['PATH']}")
    script = "set -e\n" + "".join(blocks)
    done = subprocess.run(["bash", "-c", script], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr[-2000:]


def test_there_are_pages():
    assert len(PAGES) >= 4
