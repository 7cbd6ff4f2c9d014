"""What the Python tests share: where the build is, the small model, and torch kept to two threads."""
import os
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="session")
def build_dir():
    folder = Path(os.environ.get("LAMINA_BUILD_DIR", ROOT / "build" / "release"))
    if not folder.is_dir():
        pytest.fail(f"no build in {folder}: make test builds it, LAMINA_BUILD_DIR names another folder")
    return folder


@pytest.fixture(scope="session", autouse=True)
def few_threads():
    import torch

    torch.set_num_threads(min(2, os.cpu_count() or 1))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    import tiny

    return tiny.write(tmp_path_factory.mktemp("tiny"))


@pytest.fixture
def model(folder):
    """That model in the package."""
    import lamina

    return lamina.Model.from_pretrained(folder)
