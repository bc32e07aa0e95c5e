# SPDX-License-Identifier: Apache-2.0
"""Writing checksums as a job of the library."""

from __future__ import annotations

import ctypes
import json

from . import _abi, _handles


class Checksums(_handles.Job):
    """A job that writes a model's checksums. After success, `written` lists the files."""

    def __init__(self, model: _handles.Model) -> None:
        super().__init__(model.system, model)
        self._model = model
        self.written: list[str] = []

    def _start(self) -> None:
        start = self.system.functions.nebulaio_checksum_start
        _abi.call(start, self._model.number.value, ctypes.byref(self.number))

    def wait(self, progress: _handles.ProgressCallback | None) -> None:
        super().wait(progress)
        report = json.loads(_abi.text(self.system.functions.nebulaio_report, self.number.value))
        self.written = [file["path"] for file in report["files"]]

    def _keep_report(self) -> None:
        pass  # last_report covers only moves of tensor data
