# SPDX-License-Identifier: Apache-2.0
"""What test programs did: their passed, failed and skipped tests, and the report of them at the end of a run."""

from __future__ import annotations

import os
import re
import tempfile
import xml.etree.ElementTree as xml
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from bounded import Command, Ended

_TAIL = 15  # last lines of a log that are repeated at the end
_LONGEST = 15  # files and tests whose seconds are listed
_NAMED = 5  # skipped tests of one reason that are named one by one
_FRAME = re.compile(r'  File ".*/(_pytest|pluggy|pytest)/|  File "<frozen runpy>')  # of a stack, outside of the tests

# A test and its result, if there is one, as pytest -v prints them.
_TEST = re.compile(
    r"(?:\S*/)?([^/\s]+\.py::.+?)(?: (PASSED|FAILED|ERROR|SKIPPED|XFAIL|XPASS)\b.*| Fatal Python error.*|)$"
)


@dataclass
class Outcome:
    """What one test program did."""

    name: str
    seconds: float
    output: str
    passed: int = 0
    failed: list[str] = field(default_factory=list)  # tests, with the beginning of the reason
    problems: list[str] = field(default_factory=list)  # of the program as a whole
    skipped: list[tuple[str, str]] = field(default_factory=list)  # tests and reasons
    tests: list[tuple[float, str]] = field(default_factory=list)  # seconds of each test

    @property
    def good(self) -> bool:
        return not self.failed and not self.problems

    def line(self) -> str:
        """Return the outcome in one line."""
        counts = {"passed": self.passed, "failed": len(self.failed), "skipped": len(self.skipped)}
        text = ", ".join(f"{count} {word}" for word, count in counts.items() if count) or "no tests"
        text = "; ".join([text, *self.problems])
        return f"{'' if self.good else 'FAILED '}{self.name}: {text} in {self.seconds:.1f} s"


def outcome(command: Command, ended: Ended, codes: Iterable[int] = (0,)) -> Outcome:
    """Return the outcome of a command without its tests. An exit code that is not one of `codes` is a problem."""
    output = command.log.read_text(errors="replace") if command.log.exists() else ""
    found = Outcome(command.name, ended.seconds, output)
    if ended.late:
        found.problems.append(f"did not end within {command.limit:.0f} s")
    elif ended.stopped:
        found.problems.append("was stopped by a signal")
    elif ended.code not in codes:
        found.problems.append(f"ended by signal {-ended.code}" if ended.code < 0 else f"exit code {ended.code}")
    found.problems += [f"leaves a process: {name}" for name in ended.left]
    return found


def read_pytest(found: Outcome, report: Path) -> None:
    """Add the tests of a report that pytest has written with --junit-xml."""
    try:
        cases = list(xml.parse(report).iter("testcase"))
    except (OSError, xml.ParseError):
        _read_unfinished(found)
        return
    for case in cases:
        name, where = case.get("name", ""), case.get("classname", "").split(".")
        file = next((part for part in where if part.startswith("test_")), "")
        # A file that is skipped as a whole, or fails, has its own name and no class.
        test = f"{file}::{name}" if file else name.rpartition(".")[2]
        found.tests.append((float(case.get("time", 0)), test))
        broken, skipped = [*case.iter("failure"), *case.iter("error")], case.find("skipped")
        if broken:
            found.failed.append(f"{test}: {(broken[0].get('message') or 'no reason').splitlines()[0][:300]}")
        elif skipped is not None and skipped.get("type") != "pytest.xfail":
            whole = re.search(r", \d+, ['\"]Skipped: (.*)['\"]\)", skipped.text or "", re.DOTALL)
            reason = whole[1] if whole and skipped.get("message") == "collection skipped" else skipped.get("message")
            found.skipped.append((test, reason or "no reason"))
        else:
            found.passed += 1


def _read_unfinished(found: Outcome) -> None:
    """Add what pytest -v has printed before something ended it."""
    running = ""
    for line in found.output.splitlines():
        if test := _TEST.match(line.rstrip()):
            running = "" if test[2] else test[1]
            found.passed += test[2] == "PASSED"
    found.problems.append(f"pytest has written no report{f', while it ran {running}' if running else ''}")


def read_go(found: Outcome) -> None:
    """Add the tests of the output of a Go test binary with -test.v."""
    reason = "no reason"
    for line in found.output.splitlines():
        if test := re.match(r"--- (PASS|FAIL|SKIP): (\S+) \(([\d.]+)s\)", line):
            found.tests.append((float(test[3]), test[2]))
            if test[1] == "PASS":
                found.passed += 1
            elif test[1] == "FAIL":
                found.failed.append(f"{test[2]}: {reason}")
            else:
                found.skipped.append((test[2], reason))
        elif line.startswith("=== RUN"):
            reason = "no reason"
        elif said := re.match(r" +\S+\.go:\d+: (.+)", line):
            reason = said[1][:300]


def read_steps(found: Outcome) -> None:
    """Add the programs that test/native/steps.sh has run."""
    for kind, program, seconds, reason in re.findall(
        r"^(passed|FAILED|skipped) (\w+)(?: in ([\d.]+) s)?(?:: (.*))?$", found.output, re.MULTILINE
    ):
        if seconds:
            found.tests.append((float(seconds), program))
        if kind == "passed":
            found.passed += 1
        elif kind == "FAILED":
            found.failed.append(f"{program}: {reason}")
        else:
            found.skipped.append((program, reason))


def details(found: Outcome) -> str:
    """Return the output of a failure. Of pytest, these are its lists of errors and failures."""
    start = re.search(r"^=+ (ERRORS|FAILURES) =+$", found.output, re.MULTILINE)
    return found.output[start.start() :].rstrip() if start else found.output.rstrip()


def final(outcomes: Sequence[Outcome], table: str = "") -> str:
    """Return the end of the report of a run: the longest, the skipped and the failed programs and tests."""
    lines = [""]
    for title, all_of_them in (("took longest:", [(one.seconds, one.name) for one in outcomes]),
                               ("tests that took longest:", [test for one in outcomes for test in one.tests])):
        longest = sorted(all_of_them, reverse=True)[:_LONGEST]
        lines += [title, *(f"  {seconds:6.1f} s  {name}" for seconds, name in longest)]
    lines += _skips([skip for one in outcomes for skip in one.skipped])
    bad = [one for one in outcomes if not one.good]
    for one in bad:
        lines += ["", f"FAILED {one.name}"]
        lines += [f"  {each}" for each in [*one.problems, *one.failed]]
        told = [line for line in one.output.rstrip().splitlines() if not _FRAME.match(line)]
        lines += [f"  | {line}" for line in told[-_TAIL:]]
    lines += ["", *([table, ""] if table else [])]
    lines += [one.line() for one in bad]
    passed, failed, skipped = counts(outcomes)
    lines.append(f"{passed} tests passed, {failed} failed, {skipped} were skipped; "
                 f"{len(bad)} of {len(outcomes)} programs failed")
    return "\n".join(lines)


def counts(outcomes: Sequence[Outcome]) -> tuple[int, int, int]:
    """Return the numbers of passed, failed and skipped tests."""
    return (sum(one.passed for one in outcomes), sum(len(one.failed) for one in outcomes),
            sum(len(one.skipped) for one in outcomes))


def _skips(skipped: Sequence[tuple[str, str]]) -> list[str]:
    """Return skipped tests by their reason, each reason with a way to get what is missing, if there is one."""
    groups: dict[tuple[str, str], list[str]] = {}
    for test, reason in skipped:
        groups.setdefault(_cause(reason), []).append(test)
    lines = ["skipped:"] if groups else []
    for (cause, fix), tests in sorted(groups.items()):
        lines.append(f"  {len(tests):3}  {cause}")
        if fix:
            lines.append(f"       to run them: {fix}")
        files = Counter(test.partition("::")[0] for test in tests)
        names = tests if len(tests) <= _NAMED else [f"{file} ({count})" for file, count in sorted(files.items())]
        lines.append("       " + ", ".join(names))
    return lines


# Packages whose name on PyPI is another one than that of the module.
_PACKAGES = {"nvidia": "nvidia-dali-cuda130", "DALI": "nvidia-dali-cuda130", "paddle": "paddlepaddle"}


def _cause(reason: str) -> tuple[str, str]:
    """Return a reason in one line, the same for the same cause, and a way to remove the cause, or nothing."""
    reason = " ".join(reason.split())
    if "5027" in reason:
        return "libcufile registers no file, because udev has no entry for its disk (error 5027)", _udev_entry()
    if missing := re.search(r"could not import '([\w.]+)'", reason):
        top = missing[1].partition(".")[0]
        return f"could not import '{top}'", f"pip install {_PACKAGES.get(top, top)}"
    if missing := re.match(r"(\w+)(?: [\d.]+)? is not installed", reason):
        tool = missing[1] in ("strace", "cc")
        return missing[0], f"{'apt' if tool else 'pip'} install {_PACKAGES.get(missing[1], missing[1])}"
    return reason, ""


def _udev_entry() -> str:
    """Return a command that makes the udev entry of the disk of temporary files, on a machine without udev."""
    folders = (tempfile.gettempdir(), "/var/tmp")
    number = next((dev for dev in (os.stat(folder).st_dev for folder in folders) if os.major(dev)), 0)
    disk = f"{os.major(number)}:{os.minor(number)}"
    mounts = [line.split() for line in Path("/proc/self/mountinfo").read_text().splitlines()]
    kind = next((words[words.index("-") + 1] for words in mounts if words[2] == disk), "ext4")
    return ("start udev, or as root: mkdir -p /run/udev/data && touch /run/udev/control && "
            rf"printf 'E:ID_FS_TYPE={kind}\nE:ID_FS_USAGE=filesystem\n' >/run/udev/data/b{disk}")
