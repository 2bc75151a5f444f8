"""``overdrive llm``: output, statuses, errors, standard input, JSON, Ctrl-C."""

import contextlib
import json
import os
import pty
import select
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from ..cli.both import environment, run


def llm(directory, *arguments, stdin=b"", env=None):
    return run([sys.executable, "-m", "overdrive", "llm", *map(str, arguments)], directory, stdin, env)


@pytest.mark.parametrize("command", [[], ["run"], ["chat"], ["bench"], ["perplexity"], ["inspect"]], ids=str)
def test_help_says_what_it_is_for(command, tmp_path):
    outcome = llm(tmp_path, *command, "--help")
    assert outcome.status == 0 and outcome.stderr == b""
    assert b"overdrive llm" in outcome.stdout and len(outcome.stdout) > 200


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["nonsense"],
        ["run", "--nonsense", "x"],
        ["run", "x", "--max-tokens", "-1"],
        ["run", "x", "--temperature", "warm"],
        ["run", "x", "--kv", "q2"],
        ["run", "x", "--raw", "--system", "y"],
        ["chat", "x"],
        ["bench", "--kernels", "sse"],
        ["bench", "--threads", "0"],
        ["bench", "--prompt", "0", "--generate", "0"],
        ["perplexity"],
        ["perplexity", "x", "--window", "1"],
    ],
    ids=" ".join,
)
def test_wrong_usage_is_status_2(arguments, tmp_path):
    outcome = llm(tmp_path, *arguments)
    assert outcome.status == 2 and outcome.stdout == b""
    assert b"usage: overdrive llm" in outcome.stderr


@pytest.mark.parametrize("command", [["run", "x"], ["chat"], ["bench"], ["perplexity", "text"]], ids=" ".join)
def test_files_that_cannot_be_loaded_are_status_1(command, tmp_path, tiny_file):
    (tmp_path / "text").write_text("some text")
    (tmp_path / "cut.gguf").write_bytes(tiny_file.read_bytes()[:5000])
    for model, said in [
        ("nothing.gguf", b"there is no model at nothing.gguf"),
        ("cut.gguf", b"cut.gguf"),
        (".", b""),
    ]:
        outcome = llm(tmp_path, *command, "--model", model if model != "." else tmp_path / "text")
        assert (outcome.status, outcome.stdout) == (1, b"")
        (line,) = outcome.stderr.splitlines()
        assert line.startswith(b"overdrive llm " + command[0].encode()) and said in line


def test_run_prints_the_answer(tmp_path, chat_file, model):
    expected = model.chat("hello", max_tokens=8).encode()
    plain = llm(tmp_path, "run", "hello", "--model", chat_file, "--max-tokens", 8)
    assert (plain.status, plain.stderr) == (0, b"")
    assert plain.stdout.rstrip(b"\n") == expected.rstrip(b"\n") and plain.stdout.endswith(b"\n")
    for arguments in (["-"], []):
        piped = llm(tmp_path, "run", *arguments, "--model", chat_file, "--max-tokens", 8, stdin=b"hello")
        assert piped == plain


def test_run_continues_a_text(tmp_path, chat_file, tiny_file, model):
    expected = model.generate("then", max_tokens=8)
    raw = json.loads(
        llm(tmp_path, "run", "then", "--raw", "--json", "--model", chat_file, "--max-tokens", 8).stdout
    )
    without = json.loads(
        llm(tmp_path, "run", "then", "--json", "--model", tiny_file, "--max-tokens", 8).stdout
    )
    assert raw["text"] == without["text"] == expected
    assert raw["n_tokens"] == len(expected.tokens) and raw["finish_reason"] == expected.finish_reason
    assert raw["n_prompt_tokens"] == len(model.tokenize("then")) and raw["model"] == str(chat_file)


def test_options_of_sampling_arrive(tmp_path, tiny_file, model):
    options = {
        "temperature": 1.5,
        "top_k": 9,
        "top_p": 0.9,
        "min_p": 0.01,
        "repetition_penalty": 1.1,
        "seed": 7,
        "overflow": "shift",
        "keep": 2,
    }
    arguments = [part for name, x in options.items() for part in ("--" + name.replace("_", "-"), x)]
    outcome = llm(tmp_path, "run", "then", "--json", "--model", tiny_file, "--max-tokens", 8, *arguments)
    assert json.loads(outcome.stdout)["text"] == model.generate("then", max_tokens=8, **options)
    text = model.generate("then", max_tokens=8)
    outcome = llm(
        tmp_path, "run", "then", "--json", "--model", tiny_file, "--max-tokens", 8, "--stop", text[3:5]
    )
    assert json.loads(outcome.stdout)["finish_reason"] == "stop"


@pytest.mark.parametrize(
    "arguments, stdin, said",
    [
        (["run", "x" * 400], b"", b"256"),
        (["run", ""], b"", b"empty"),
        (["run", "-"], b"\xff", b"UTF-8"),
        (["run", "x", "--system", "y"], b"", b"template"),
        (["chat"], b"hello\n", b"template"),
        (["run", "x", "--top-p", "3"], b"", b"top_p"),
        (["perplexity", "nowhere"], b"", b"No such file"),
        (["perplexity", "-"], b"a", b"nothing to predict"),
        (["bench", "--prompt", "5000"], b"", b"context"),
    ],
    ids=lambda x: str(x)[:20],
)
def test_errors_are_one_line(arguments, stdin, said, tmp_path, tiny_file):
    outcome = llm(tmp_path, *arguments, "--model", tiny_file, stdin=stdin)
    assert outcome.status == 1 and outcome.stdout == b""
    (line,) = outcome.stderr.splitlines()
    assert line.startswith(b"overdrive llm " + arguments[0].encode()) and said in line


def test_chat_from_a_pipe(tmp_path, chat_file, model):
    session = model.session()
    expected = [session.chat(text, max_tokens=5) for text in ("hello", "more")]
    arguments = ["chat", "--model", chat_file, "--max-tokens", 5]
    outcome = llm(tmp_path, *arguments, "--json", stdin=b"hello\n\nmore\n/exit\nnot this\n")
    assert (outcome.status, outcome.stderr) == (0, b"")
    answers = [json.loads(line) for line in outcome.stdout.splitlines()]
    assert [answer["text"] for answer in answers] == expected
    assert answers[1]["n_reused"] > 5
    again = llm(tmp_path, *arguments, "--json", stdin=b"hello\n/clear\nhello\r\n")
    assert [json.loads(line)["text"] for line in again.stdout.splitlines()] == [expected[0]] * 2
    plain = llm(tmp_path, *arguments, stdin=b"hello\nmore")
    lines = "".join(text if text.endswith("\n") else text + "\n" for text in expected)
    assert plain.stdout.decode() == lines


def test_perplexity(tmp_path, tiny_file, model):
    text = "the end of the other line is there, and then in here. " * 8
    (tmp_path / "text").write_text(text)
    from_file = llm(tmp_path, "perplexity", "text", "--model", tiny_file, "--window", 50, "--json")
    piped = llm(tmp_path, "perplexity", "-", "--model", tiny_file, "--window", 50, stdin=text.encode())
    facts = json.loads(from_file.stdout)
    total, n = model.log_likelihood(text, window=50)
    assert (facts["log_likelihood"], facts["n_counted"]) == (total, n)
    assert facts["window"] == 50 and facts["n_tokens"] == len(model.tokenize(text))
    assert f"perplexity {facts['perplexity']:.4f} ".encode() in piped.stdout


def test_bench(tmp_path, tiny_file):
    arguments = ["bench", "--model", tiny_file, "--prompt", 20, "--generate", 6, "--repeat", 2, "--profile"]
    outcome = llm(tmp_path, *arguments, "--threads", "1,2", "--kernels", "auto,scalar", "--json")
    assert (outcome.status, outcome.stderr) == (0, b"")
    facts = json.loads(outcome.stdout)
    runs = facts["runs"]
    assert [(row["threads"], row["what"], row["n_tokens"]) for row in runs] == [
        (1, "prompt", 20), (1, "generate", 6), (2, "prompt", 20), (2, "generate", 6)
    ] * 2  # fmt: skip
    assert runs[4]["kernels"] == "scalar"
    for row in runs:
        assert 0 < row["slowest"] <= row["tokens_per_second"] <= row["fastest"] and len(row["seconds"]) == 2
        assert {"attention", "head"} <= {each["operator"] for each in row["profile"]}
    table = llm(tmp_path, *arguments)
    assert b"tokens/s" in table.stdout and b"GB/s" in table.stdout


@pytest.fixture
def start(tmp_path):
    """Start a command, which ends with the test at the latest."""
    with contextlib.ExitStack() as stack:

        def start(*arguments):
            command = [sys.executable, "-m", "overdrive", "llm", *map(str, arguments)]
            pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
            child = subprocess.Popen(command, cwd=tmp_path, env=environment(), **pipes)
            stack.enter_context(child)
            stack.callback(child.kill)
            return child

        yield start


def test_ctrl_c_ends_what_computes_with_130(start, tiny_file):
    child = start("bench", "--model", tiny_file, "--repeat", 1000000, "--prompt", 200)
    # It has loaded the extension, and is soon behind the rest of its imports.
    while "_core.cpython" not in Path(f"/proc/{child.pid}/maps").read_text():
        time.sleep(0.05)
    time.sleep(1.5)
    child.send_signal(signal.SIGINT)
    out, err = child.communicate(timeout=60)
    assert (child.returncode, out, err) == (130, b"", b"\n")


def test_ctrl_c_ends_what_waits_with_130(start, chat_file):
    child = start("chat", "--json", "--model", chat_file, "--max-tokens", 3)
    child.stdin.write(b"hello\n")
    child.stdin.flush()
    assert json.loads(child.stdout.readline())["n_tokens"] == 3
    child.send_signal(signal.SIGINT)
    out, err = child.communicate(timeout=60)
    assert (child.returncode, out, err) == (130, b"", b"\n")


def test_who_reads_no_more_is_no_error(tmp_path, tiny_file):
    command = f"{sys.executable} -m overdrive llm run x --model {tiny_file} --max-tokens 200 | head -c 1"
    done = subprocess.run(
        ["bash", "-c", command], cwd=tmp_path, env=environment(), capture_output=True, timeout=60
    )
    assert done.stderr == b""


class Terminal:
    """A command on a terminal of its own."""

    def __init__(self, directory, *arguments):
        self.child, self.fd = pty.fork()
        if self.child == 0:
            os.chdir(directory)
            command = [sys.executable, "-m", "overdrive", "llm", *map(str, arguments)]
            os.execve(sys.executable, command, environment({"TERM": "dumb", "LC_ALL": "C.UTF-8"}))
        self.seen = b""

    def until(self, text, seconds=60):
        end = time.monotonic() + seconds
        while text not in self.seen:
            ready, _, _ = select.select([self.fd], [], [], 0.1)
            if ready:
                try:
                    self.seen += os.read(self.fd, 65536)
                except OSError:
                    break
            assert time.monotonic() < end, self.seen
        before, _, self.seen = self.seen.partition(text)
        return before

    def type(self, text):
        os.write(self.fd, text)

    def status(self):
        try:
            self.until(b"\0never\0", 30)
        finally:
            os.close(self.fd)
            _, status = os.waitpid(self.child, 0)
        return os.waitstatus_to_exitcode(status)


@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_chat_on_a_terminal(tmp_path, chat_file, model):
    session = model.session()
    first, second = (session.chat(text, max_tokens=5) for text in ("hello", "more"))
    terminal = Terminal(tmp_path, "chat", "--model", chat_file, "--max-tokens", 5)
    assert b"/exit" in terminal.until(b"> ")
    for question, answer in [(b"hello\n", first), (b"more\n", second)]:
        terminal.type(question)
        shown = terminal.until(b"> ").replace(b"\r\n", b"\n")
        assert shown.decode() == f"{question.decode()}{answer}" + ("" if answer.endswith("\n") else "\n")
    terminal.type(b"/help\n")
    assert b"/clear" in terminal.until(b"> ")
    terminal.type(b"/nonsense\n")
    assert b"there is no /nonsense" in terminal.until(b"> ")
    terminal.type(b"\x04")
    assert terminal.status() == 0
