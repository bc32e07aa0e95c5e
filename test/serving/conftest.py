# SPDX-License-Identifier: Apache-2.0
"""The set-up of the tests: vLLM and SGLang on the CPU without compiled parts, and no network."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "python"), str(ROOT / "python" / "tests")]
os.environ.update(VLLM_TARGET_DEVICE="cpu", HF_HUB_OFFLINE="1", VLLM_NO_USAGE_STATS="1", VLLM_LOGGING_LEVEL="ERROR",
                  TQDM_DISABLE="1")


@pytest.fixture(scope="session")
def checkpoints(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory for checkpoints that several tests share."""
    return tmp_path_factory.mktemp("checkpoints")
