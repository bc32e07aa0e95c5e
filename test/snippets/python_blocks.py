# SPDX-License-Identifier: Apache-2.0
"""Runs the Python blocks of one page one after the other, as in a reader's session.

The process reads one JSON object per line from standard input, {name, line, text, language, environment, folder}. It
answers each with a line on descriptor 3: "ok", or "failed" after the traceback was written to standard error.
"""

import doctest
import importlib
import json
import linecache
import os
import sys
import traceback


def run(order: dict, names: dict) -> bool:
    os.environ.clear()
    os.environ.update(order["environment"])
    os.chdir(order["folder"])
    if order["language"] == "doctest":
        return doctest.testmod(importlib.import_module(order["text"].strip()), optionflags=doctest.ELLIPSIS).failed == 0
    # The lines before the block are left empty, so that a traceback shows the line of the page.
    text = "\n" * (order["line"] - 1) + order["text"]
    linecache.cache[order["name"]] = (len(text), None, text.splitlines(True), order["name"])
    exec(compile(text, order["name"], "exec"), names)
    return True


def main() -> None:
    # No process that a block starts may read the requests or write the answers.
    orders, answers = os.fdopen(os.dup(0), "r"), os.fdopen(os.dup(3), "w")
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.close(3)
    sys.path.insert(0, "")
    names: dict = {"__name__": "__main__"}
    for line in orders:
        try:
            answer = "ok" if run(json.loads(line), names) else "failed"
        except BaseException:  # noqa: BLE001
            traceback.print_exc()
            answer = "failed"
        sys.stdout.flush()
        sys.stderr.flush()
        print(answer, file=answers, flush=True)


if __name__ == "__main__":
    main()
