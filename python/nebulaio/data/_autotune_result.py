# SPDX-License-Identifier: Apache-2.0
"""The answer of `autotune`: the chosen settings, and the evidence for each."""

from __future__ import annotations

import json
import statistics
from dataclasses import asdict, dataclass, field
from typing import Any

from ._profile_result import plain
from ._profile_text import duration, number, size, table


@dataclass
class Candidate:
    """One tried setting of the loader, with what it gave."""

    settings: dict[str, Any]
    rates: list[float] = field(default_factory=list)  # samples per second of each run, with fresh workers
    rounds: list[float] = field(default_factory=list)  # samples per second of each round, of all runs
    seconds: float = 0.0  # spent on the candidate, with the start and the end of its workers
    start: float = 0.0  # seconds until the first batch, with the start of workers; not part of any rate
    batch_seconds: float = 0.0  # median seconds per batch
    storage_bytes: int | None = None  # bytes that came from storage during the rounds; None if the kernel does not say
    remark: str = ""  # why there is no rate, or why the rate is to be read with care

    @property
    def rate(self) -> float:
        """Samples per second: the median over all runs. 0 if nothing was measured."""
        return statistics.median(self.rates) if self.rates else 0.0

    @property
    def noise(self) -> float:
        """The spread of the rounds: their median distance from the middle one, as a share of it."""
        middle = statistics.median(self.rounds) if self.rounds else 0.0
        return statistics.median(abs(each - middle) for each in self.rounds) / middle if middle > 0 else 0.0

    @property
    def name(self) -> str:
        """The settings as text, such as "num_workers=2 prefetch_factor=2"."""
        return " ".join(f"{name}={value}" for name, value in self.settings.items()) or "as configured"


@dataclass(frozen=True)
class Tuning:
    """The settings that `autotune` chose, and why.

    `settings` are the keywords for the loader, such as {"num_workers": 2, "prefetch_factor": 2}.
    `reasons` has one sentence for each setting. `tried` are all measured candidates in the order in which
    they were first tried. `sentence` sums up the choice, and `notes` say what was left out. `str()` gives
    all of it as text.
    """

    settings: dict[str, Any]
    sentence: str
    reasons: dict[str, str]
    tried: tuple[Candidate, ...]
    seconds: float  # of the whole search
    max_seconds: float
    complete: bool  # whether the search ended before its time
    notes: tuple[str, ...]

    def to_json(self) -> str:
        """Return all fields as a JSON object, with the rate and the noise of each candidate."""
        content = asdict(self)
        for entry, candidate in zip(content["tried"], self.tried):
            entry |= {"rate": candidate.rate, "noise": candidate.noise}
        return json.dumps(plain(content), ensure_ascii=False)

    def __str__(self) -> str:
        head = ["tried", "samples/s", "noise", "rounds", "runs", "start", "seconds", "from storage", "remark"]
        rows = [
            [
                each.name,
                number(each.rate) if each.rates else "-",
                f"{each.noise * 100:.0f} %",
                str(len(each.rounds)),
                str(len(each.rates)),
                duration(each.start),
                f"{each.seconds:.2f}",
                "?" if each.storage_bytes is None else size(each.storage_bytes),
                each.remark,
            ]
            for each in self.tried
        ]
        lines = [self.sentence, "", table(head, rows), ""]
        lines += [f"{name}={self.settings[name]}: {reason}" for name, reason in self.reasons.items()]
        lines += [f"note: {note}" for note in self.notes]
        lines.append(f"The search took {self.seconds:.1f} s of {self.max_seconds:.1f} s.")
        return "\n".join(lines)
