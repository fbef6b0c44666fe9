"""Few threads, signals, forks, arrays that change: the native core neither hangs nor panics."""

import json
import os
import subprocess
import sys
import textwrap
import threading

import numpy as np
import pytest

from tokenizer import Batch, Tokenizer, UserError, _native, count_pretokens, patterns
from tokenizer.progress import MOST_THREADS, thread_count

linux = pytest.mark.skipif(sys.platform != "linux", reason="signals, forks and limits as Linux has them")

START = """
    import json, os, re, resource, signal, threading, time
    import numpy as np
    from tokenizer import Batch, PretokenCounts, Tokenizer, _native, count_pretokens, patterns, train_bpe

    def limit_memory(megabytes):
        size = int(re.search(r"VmSize:\\s+(\\d+)", open("/proc/self/status").read())[1]) << 10
        resource.setrlimit(resource.RLIMIT_AS, (size + (megabytes << 20),) * 2)

    def counts_of(text):
        return PretokenCounts(
            np.frombuffer(text.encode(), np.uint8), np.array([0, len(text)]), np.ones(1, np.uint64),
            patterns.resolve("none"), "document", (), n_bytes=1, n_documents=1,
        )

    def count(batch, threads):
        return count_pretokens([batch], "gpt2", threads=threads, memory_bytes=None).counts.tolist()

    tokenizer = Tokenizer.from_ranks([(0, 0), (256, 256)], pattern=patterns.resolve("gpt2"))
    uncut = Tokenizer.from_ranks([(0, 0), (256, 256)], pattern=patterns.resolve("none"))  # rank 0 is "!"
    text = "the cat sat on the mat, " * (1 << 20)
    tokenizer.encode("a")
"""


def run(program, **environment):
    """Run `START` and the program in a fresh process; return what it prints."""
    command = [sys.executable, "-c", textwrap.dedent(START) + textwrap.dedent(program)]
    environment = os.environ | environment
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


# ------------------------------------------------------------------------------- threads


@pytest.mark.parametrize("threads", [MOST_THREADS + 1, 100_000, 0])
def test_too_many_threads_are_rejected(threads, monkeypatch):
    tokenizer = Tokenizer.from_ranks([], pattern=patterns.resolve("gpt2"))
    monkeypatch.setenv("SUPERBPE_THREADS", "none")
    with pytest.raises(UserError, match=f"SUPERBPE_THREADS='none' must be a whole number, from 1 to {MOST_THREADS}"):
        tokenizer.encode_batch(["a", "b"])
    monkeypatch.setenv("SUPERBPE_THREADS", "3")
    assert tokenizer.encode_batch(["a"])[1].tolist() == [0, 1]
    with pytest.raises(UserError, match=f"threads={threads} must be from 1 to {MOST_THREADS}"):
        thread_count(threads)
    with pytest.raises(UserError, match=f"threads={threads} must be"):
        count_pretokens([Batch.from_texts(["a"])], "gpt2", threads=threads)
    monkeypatch.setenv("SUPERBPE_THREADS", str(threads))
    with pytest.raises(UserError, match=f"SUPERBPE_THREADS={threads} must be from 1 to {MOST_THREADS}"):
        thread_count(None)


@pytest.mark.slow
@linux
def test_threads_that_could_start_do_the_work():
    program = """
    batch = Batch.from_texts(["the cat sat on the mat, " * 10_000] * 20)
    expected, counted = tokenizer.encode_batch(batch, threads=1)[0], count(batch, 1)
    limit_memory(2900)
    assert (tokenizer.encode_batch(batch, threads=1000)[0] == expected).all()
    assert count(batch, 1000) == counted
    print("equal")
    """
    assert run(program, RUST_MIN_STACK=str(1 << 30)) == "equal\n"  # there is room for two stacks


@linux
def test_calls_do_without_threads_and_readers_say_that_they_need_one():
    program = """
    import tempfile
    from tokenizer import Corpus, CorpusConfig
    batch = Batch.from_texts([text[:1000]] * 1000)
    expected = count(batch, 1)
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as file:
        file.write(text)
        file.flush()
        corpus = Corpus(CorpusConfig(paths=[file.name]))
        limit_memory(900)
        assert len(tokenizer.encode_batch(batch, threads=3)[0]) == 1_000_000
        assert count(batch, 3) == expected
        try:
            next(iter(corpus.batches()))
        except ValueError as error:
            print(error)
    """
    assert run(program, RUST_MIN_STACK=str(1 << 30)).startswith("no thread can be started (")


# ------------------------------------------------------------------------------- signals

LONG_CALLS = {
    "encode": "tokenizer.encode(text * 16)",
    "encode a run": "uncut.encode('!' * (1 << 26))",
    "encode_batch": "tokenizer.encode_batch([text * 8] * 3, threads=2)",
    "encode_batch of one long text": "uncut.encode_batch(['a', '!' * (1 << 26)], threads=2)",
    "count_tokens": "tokenizer.count_tokens_batch([text * 16], threads=1)",
    "normalize": "_native.Preparation(None, ['NFC']).lengths(['e\\u0301' * (1 << 25)], 1)",
    "count": "count_pretokens([Batch.from_texts([text * 8])], r'[a-z]+|[^a-z]+', threads=2)",
    "train": "train_bpe(counts_of(text * 4), 300)",
    "sum_counts": "_native.sum_counts([many] * 4)",
}


@pytest.mark.slow
@linux
def test_ctrl_c_stops_a_long_call_at_once():
    program = f"""
    n = 1 << 23
    many = np.arange(n, dtype=">u8").view(np.uint8), np.arange(n + 1) * 8, np.ones(n, np.uint64), 1
    delays = {{}}  # in CPU seconds of all threads: other processes do not count
    for name, call in {LONG_CALLS!r}.items():
        call, sent = compile(call, name, "eval"), []
        timer = threading.Timer(0.5, lambda: (sent.append(time.process_time()), os.kill(os.getpid(), signal.SIGINT)))
        timer.start()
        try:
            eval(call)
        except KeyboardInterrupt:
            delays[name] = time.process_time() - sent[0]
        else:
            delays[name] = -1
            timer.cancel()
    print(json.dumps(delays))
    """
    delays = json.loads(run(program))
    assert set(delays) == set(LONG_CALLS)
    assert {name: delay for name, delay in delays.items() if not 0 <= delay < 5} == {}


@pytest.mark.slow
@linux
def test_ctrl_c_reaches_a_call_that_waits_for_threads():
    """Any exception of the signal handler propagates, and the tokenizer still encodes as before."""
    program = """
    expected = uncut.encode("!" * 1000)
    def handler(*_):
        raise SystemExit(7)
    signal.signal(signal.SIGALRM, handler)
    signal.setitimer(signal.ITIMER_REAL, 0.3)
    try:
        uncut.encode_batch(["!" * (1 << 25)] * 2, threads=2)
    except SystemExit as error:
        assert error.code == 7
        assert uncut.encode("!" * 1000) == expected
        print("stopped")
    """
    assert run(program) == "stopped\n"


# --------------------------------------------------------------------------------- forks


@pytest.mark.slow
@linux
def test_forks_of_a_process_whose_threads_encode():
    program = """
    texts = [f"the cat {i} sat on the mat, " * 40 for i in range(20)]
    lengths = np.array([len(token) for token in tokenizer.vocab], np.uint32)
    done = threading.Event()
    def work():
        while not done.is_set():
            tokenizer.definition.encoder.encode_stream(texts, 257, lengths)
    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    hung = 0
    for _ in range(FORKS):
        child = os.fork()
        if child == 0:
            tokenizer.definition.encoder.encode_stream(texts[:1], 257, lengths)
            os._exit(0)
        for _ in range(2000):
            ended, status = os.waitpid(child, os.WNOHANG)
            if ended:
                assert status == 0
                break
            time.sleep(0.005)
        else:
            hung += 1
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
    done.set()
    for thread in threads:
        thread.join()
    print("hung", hung)
    """
    assert run(program.replace("FORKS", "20")) == "hung 0\n"


@pytest.mark.slow
@linux
def test_a_fork_without_the_threads_exits():
    program = """
    import tempfile
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as file:
        file.write(text)
        file.flush()
        reader = _native.Reader(
            [(file.name, "txt", None)], field="text", separator=",", score_field=None, min_score=0.0,
            replace_invalid=False, skip_damaged=False,
            document_limit_bytes=1 << 30, skip_above=None, batch_bytes=1 << 16, threads=1, in_order=True,
        )
        next(reader)
        if child := os.fork():
            print(os.waitpid(child, 0)[1])
        else:
            try:
                next(reader)
            except ValueError as error:
                os._exit(0 if "before a fork" in str(error) else 7)
            os._exit(8)
    """
    assert run(program) == "0\n"


# -------------------------------------------------------------------------------- arrays


def test_arrays_changed_by_another_thread():
    """At worst, a call that has not read them yet gives another result or a UserError."""
    tokenizer = Tokenizer.from_ranks([], pattern=patterns.resolve("gpt2"))
    data, offsets = np.frombuffer("né".encode() * 40_000, np.uint8), np.arange(0, 120_001, 3)
    counts = np.ones(len(offsets) - 1, np.uint64)
    given = [array.copy() for array in (data, offsets, counts)]
    stop = threading.Event()

    def change():
        while not stop.is_set():
            for array, wrong in zip(given, (0xC3, 1 << 40, 1 << 40), strict=True):
                array[::7] = wrong
            for array, right in zip(given, (data, offsets, counts), strict=True):
                array[:] = right

    def train():
        options = {
            "tie_break": "lowest-ids",
            "min_count": 1,
            "max_token_bytes": None,
            "special_tokens": [],
            "forbid": [],
        }
        tokens = [bytes([byte]) for byte in range(256)]
        _native.train_bpe(given[0].astype(np.uint32), *given[1:], tokens, 5, **options, progress=None)

    thread = threading.Thread(target=change)
    thread.start()
    try:
        outcomes = set()
        for _ in range(15):
            for call in (
                lambda: _native.Batch.from_buffers(given[0], given[1]).text(5),
                lambda: _native.sum_counts([(*given, 1)]),
                lambda: tokenizer._decoder.decode_batch(np.full(200_000, 97, np.uint32), given[1]),
                train,
            ):
                try:
                    call()
                    outcomes.add("result")
                except UserError:
                    outcomes.add("error")
    finally:
        stop.set()
        thread.join()
    assert outcomes  # results or a UserError; any other error was raised above
    assert bytes(tokenizer.encode("still works")) == b"still works"  # a token for each byte, and no state is broken


@pytest.mark.slow
def test_the_first_long_call_does_not_load_numpys_interface():
    """Loading it runs Python code, which a pending Ctrl-C would end: the core would panic."""
    program = """if True:
        import sys
        from tokenizer.tokenizer import _native
        sys.modules["numpy._core.multiarray"] = sys.modules["numpy.core.multiarray"] = None
        print(_native.sum_counts([])[1])
    """
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "[0]\n"
