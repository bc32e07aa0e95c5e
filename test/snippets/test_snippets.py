# SPDX-License-Identifier: Apache-2.0
"""The harness finds every block, refuses hidden blocks, and fails for blocks that do not work."""

import os
import subprocess
import sys
from pathlib import Path

import pages
import pytest
import session
from pages import Block, PageError

HERE = Path(__file__).resolve().parent


def page(*blocks):
    """Return a Markdown page of (mark, language, text)."""
    return "\n".join((f"<!-- snippet: {mark} -->\n" if mark else "") + f"```{language}\n{text}\n```\n"
                     for mark, language, text in blocks)


def test_blocks_are_found_with_their_lines_and_marks():
    found = pages.markdown("a.md", "# A\n\n" + page(("", "sh", "true"), ("needs torch, gpu", "python", "1"),
                                                    ("", "text", "out")))
    assert [(b.line, b.language, b.kind, sorted(b.needs)) for b in found.blocks] == [
        (4, "sh", "run", []),
        (9, "python", "run", ["gpu", "torch"]),
        (13, "text", "output", []),
    ]
    assert not found.blocks[1].runs(frozenset({"torch"})) and found.blocks[1].runs(frozenset({"torch", "gpu"}))


def test_fences_of_other_kinds_are_found_too():
    found = pages.markdown("a.md", "~~~~sh\ntrue\n~~~\n~~~~\n```python title='a'\n1\n```\n")
    assert [(b.language, b.text) for b in found.blocks] == [("sh", "true\n~~~\n"), ("python", "1\n")]


def test_blocks_in_lists_lose_their_indentation():
    assert pages.markdown("a.md", "1. x\n\n    more of it\n\n   ```sh\n   a\n     b\n   ```\n").blocks[
        0].text == "a\n  b\n"


@pytest.mark.parametrize(
    "text, why",
    [
        (page(("", "", "nebulaio load x")), "without a language"),
        (page(("", "text", "nebulaio load x")), "text block with the command"),
        (page(("", "text", "$ ls")), "text block with the command"),
        (page(("", "rust", "x")), "no way to run"),
        (page(("needs luck", "sh", "x")), "unknown mark"),
        (page(("skip", "sh", "x")), "unknown mark"),
        (page(("server", "python", "x")), "only a shell's block"),
        ("<!-- snippet: output -->\n\n```text\n```\n", "a mark without a block"),
        ("```sh\ntrue\n", "does not end"),
        ("Words:\n\n    nebulaio load x\n", "an indented block"),
    ],
)
def test_blocks_that_hide_are_refused(text, why):
    with pytest.raises(PageError, match=why):
        pages.markdown("a.md", text)


def test_code_in_headers_and_go_comments():
    found = pages.header("a.h", "/*\n * Words.\n * @code{.cpp}\n * int a;\n *\n *     int b;\n * @endcode\n */\n")
    assert [(b.line, b.language, b.text) for b in found.blocks] == [(4, "cpp", "int a;\n\n    int b;\n")]
    assert pages.header("a.h", "/*\n * @code{.cpp} snippet: needs gpu\n * int a;\n * @endcode\n */\n").blocks[
        0].needs == {"gpu"}
    with pytest.raises(PageError, match="code in a comment"):
        pages.header("a.h", "/*\n *   system sys;\n */\n")
    with pytest.raises(PageError, match="code in a doc comment"):
        pages.go_documentation("a.go", "// Words.\n//\n//\tsys := New()\npackage a\n")


@pytest.fixture
def reader(tmp_path):
    session.adopt_orphans()
    folder = tmp_path / "reader"
    folder.mkdir()
    made = session.Session(folder, {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}, HERE,
                           HERE)
    yield made
    made.close()


def block(language, text, kind="run", line=1):
    return Block("a.md", line, language, text, kind)


def test_one_session_for_a_page(reader):
    reader.run(block("sh", "export WHO=reader\nmkdir inner\ncd inner\nlocal_name=1\n"))
    reader.run(block("sh", 'test "$local_name" = 1\n'))
    reader.run(block("python", "import os\nwho = os.environ['WHO']\nassert os.getcwd().endswith('inner')\n"))
    reader.run(block("python", "open('who', 'w').write(who)\n"))
    reader.run(block("console", "$ cat who\nreader\n$ echo b\n...\nb\n"))


@pytest.mark.parametrize(
    "language, text, says",
    [
        ("sh", "false\ntrue\n", "this sh block failed"),
        ("sh", "echo $NO_SUCH_NAME\n", "NO_SUCH_NAME: unbound variable"),
        ("sh", "false | true\n", "this sh block failed"),
        ("sh", "exit 0\n", "this sh block failed"),  # the reader's terminal would be gone
        ("console", "$ false\n", "this console block failed"),
        ("console", "$ echo one\ntwo\n", "no line of the output begins as this one does: two"),
        ("python", "\nno_such_name\n", 'File "a.md", line 8'),
        ("python", "raise SystemExit(0)\n", "SystemExit"),
        ("doctest", "no_such_module", "No module named"),
        ("json", '{"a": 1,}\n', "no JSON"),
        ("cpp", "int main() { return 3; }\n", "this cpp block failed"),
    ],
)
def test_what_does_not_work_fails(reader, language, text, says):
    reader.library = reader.folder  # an empty library is enough for programs that call nothing
    subprocess.run(["cc", "-shared", "-x", "c", os.devnull, "-o", reader.folder / "libnebulaio.so"], check=True)
    with pytest.raises(session.Failed) as problem:
        reader.run(block(language, text, line=7))
    assert says in str(problem.value) and "a.md:7" in str(problem.value)


SERVER = """
import signal, socket, sys
s = socket.create_server(("127.0.0.1", int(sys.argv[1])))
print("endpoint", flush=True)
signal.pause()
"""


def test_servers_are_stopped_with_all_they_started(reader):
    (reader.folder / "serve.py").write_text(SERVER)
    reader.run(block("sh", "python -c 'import socket; s = socket.create_server((\"127.0.0.1\", 0)); print(s.getsockname()[1])' >port\n"))
    for kind in ("server", "server"):  # the second one needs the port of the first
        reader.run(block("sh", "python serve.py $(cat port)\n", kind))
    reader.run(block("sh", "! python serve.py $(cat port)\n"))
    reader.run(
        block("sh",
              "python -c 'import socket, sys; socket.create_server((\"127.0.0.1\", int(sys.argv[1])))' $(cat port)\n",
              "server stopped"))
    with pytest.raises(session.Failed):
        reader.run(block("sh", "echo it ends at once\n", "server"))


def test_the_command_counts_and_fails(tmp_path):
    (tmp_path / "good.md").write_text(page(("", "sh", "test ! -e made\ntouch made"), ("needs gpu", "sh", "false"),
                                           ("", "text", "x")))
    (tmp_path / "bad.md").write_text(page(("", "sh", "false")))
    command = [sys.executable, str(HERE / "run.py"), "--root", str(tmp_path)]
    done = subprocess.run([*command, "good.md"], stdout=subprocess.PIPE, text=True)
    assert done.returncode == 0, done.stdout
    assert "1 snippets ran on 1 pages; marked: 1 needs gpu; 1 output" in done.stdout
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert done.returncode == 1 and "bad.md:2: this sh block failed" in done.stderr
    done = subprocess.run([*command, "--needs", "torch"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert done.returncode == 1 and "no block to run" in done.stderr
