"""Text on a loopback endpoint: the documents equal those of local files, whatever the endpoint does."""

import csv
import gzip
import os
import random
import re
import subprocess
import sys
import textwrap
import threading
import time
from functools import partial

import pytest
from pyarrow.fs import GcsFileSystem

from tests.properties import quick_first
from tests.tokenizer.corpus.corpora import write_jsonl, write_parquet
from tests.tokenizer.corpus.endpoint import COMMIT, SECRETS
from tokenizer import Corpus, CorpusConfig, UserError, count_pretokens
from tokenizer.corpus import remote
from tokenizer.corpus.reading import FILES_AHEAD
from tokenizer.corpus.rows import FOOTER_BYTES, read_parquet
from tokenizer.corpus.skipped import Skipped
from tokenizer.files import weighted

NAMES = ["a.jsonl", "b.jsonl.gz", "c.jsonl.zst", "d.txt", "e.parquet", "f.jsonl", "h.csv.gz"]
KINDS = ["s3://bucket/data/{}", "{endpoint}/bucket/data/{}", "hf://datasets/org/name/data/{}"]


@pytest.fixture
def local(endpoint, tmp_path):
    """Files of every kind, which are on the endpoint as well."""
    for number, name in enumerate(NAMES):
        n = 250 if name.endswith((".jsonl", ".txt")) else 700
        records = [{"text": f"document {i} of {name}: " + f"{i * number} " * (i % 50)} for i in range(n)]
        if name.endswith(".parquet"):
            write_parquet(tmp_path / name, records)
        elif name.endswith(".csv.gz"):
            with gzip.open(tmp_path / name, "wt") as file:
                csv.writer(file).writerows([["text"], *([each["text"]] for each in records)])
        elif name.endswith(".txt"):
            (tmp_path / name).write_text("\n\n".join(each["text"] for each in records))
        else:
            write_jsonl(tmp_path / name, records)
        for place in ("bucket", "org/name"):
            endpoint.objects[f"{place}/data/{name}"] = (tmp_path / name).read_bytes()
    return tmp_path


def texts(paths, **settings):
    return list(Corpus(CorpusConfig(paths=list(map(str, paths)), batch_bytes=5000, **settings)).documents())


def urls(kind, endpoint, names=NAMES):
    return [kind.format(name, endpoint=endpoint.url) for name in names]


@pytest.mark.parametrize("kind", quick_first(KINDS))
def test_documents_equal_those_of_local_files(kind, endpoint, local):
    faults = [500, 503, 429, "cut", "slow"]
    endpoint.faults.extend(each for fault in faults for each in (fault, None, None))
    assert texts(urls(kind, endpoint)) == texts(local / name for name in NAMES)
    assert not endpoint.faults
    assert all(endpoint.used[fault] == 1 for fault in faults)


@pytest.mark.parametrize(
    ("wrong", "name", "block", "kind"),
    quick_first(
        [
            *(("short", "a.jsonl", 1 << 10, kind) for kind in KINDS),
            ("zeros", "e.parquet", 1 << 23, KINDS[0]),
            ("shifted", "h.csv.gz", 1 << 10, KINDS[0]),
            *(("short", name, 1 << 10, KINDS[0]) for name in ("d.txt", "e.parquet")),
            *((wrong, "a.jsonl", 1 << 10, KINDS[1]) for wrong in ("long", "none", "repeated")),
            *((wrong, "e.parquet", 1 << 23, KINDS[0]) for wrong in ("short", "shifted")),
        ],
        5,
    ),
)
def test_answers_with_other_bytes_are_errors_and_not_damage(kind, wrong, name, block, endpoint, local, monkeypatch):
    monkeypatch.setattr(remote, "BLOCK_BYTES", block)
    # Threads of the test before may close the client of hf:// once.
    monkeypatch.setattr(remote, "ATTEMPTS", 4 if kind == KINDS[2] else 1)
    endpoint.wrong, endpoint.wrong_from = wrong, 1 << 10
    url = kind.format(name, endpoint=endpoint.url)
    with pytest.raises(UserError, match=rf"{name}: .*the request for bytes=\d+-\d+ was answered with") as error:
        texts([url], on_error="skip")
    assert endpoint.used[wrong]
    assert "damaged" not in str(error.value)


@pytest.mark.parametrize("kind", quick_first(KINDS))
def test_zeros_are_no_text_and_not_skipped(kind, endpoint):
    """Whatever is read again: the server has no other bytes."""
    contents = {"a.jsonl": b'{"text": "a"}\n' * 9, "a.txt": b"a" * 99, "a.csv": b"text\na\n"}
    for place in ("bucket", "org/name"):
        endpoint.objects |= {f"{place}/data/{name}": content + bytes(300) for name, content in contents.items()}
    for name in contents:
        with pytest.raises(UserError, match=rf"{name}: .* byte \d+ .*zeros"):
            texts(urls(kind, endpoint, [name]), on_error="skip")


def test_a_saved_dataset_in_a_bucket_is_an_error_and_not_damage(endpoint, tmp_path):
    import datasets

    datasets.Dataset.from_list([{"text": "a"}]).save_to_disk(tmp_path)
    endpoint.objects |= {f"bucket/saved/{path.name}": path.read_bytes() for path in tmp_path.iterdir()}
    with pytest.raises(UserError, match=r"s3://bucket/saved/data-\S+\.arrow: .*download it, and read it from disk"):
        texts(["s3://bucket/saved"], on_error="skip")


@pytest.mark.parametrize("failure", [OSError(9, "Bad file descriptor"), RuntimeError("the client has been closed")])
def test_a_client_that_another_thread_closes_is_opened_again(failure, monkeypatch):
    monkeypatch.setattr(remote, "FIRST_DELAY", 0)
    answers = iter((failure, None))

    def call():
        if error := next(answers):
            raise error
        return "text"

    assert remote.attempted("hf://a", call) == "text"


def test_remote_parquet_takes_no_memory_for_the_size_of_its_file(tmp_path):
    path = write_parquet(
        tmp_path / "a.parquet", [{"text": f"document {i} " * 30} for i in range(100)], row_group_size=30
    )
    content, hole = path.read_bytes(), 1 << 42  # in front of the footer
    footer = content[-8 - int.from_bytes(content[-8:-4], "little") :]

    class Large(remote.RemoteFile):
        def blocks(self, start=0, end=None):
            yield content[start:end] if end else bytes(FOOTER_BYTES - len(footer)) + footer

    file = Large("s3://bucket/a.parquet", remote.Stat(hole + len(content), ""), "")
    batches = read_parquet(file, CorpusConfig(), Skipped())
    assert [batch.text(i) for batch in batches for i in range(len(batch))] == texts([path])


def test_parts_have_the_documents_of_their_files(endpoint, local):
    parts = Corpus(CorpusConfig(paths=urls(KINDS[2], endpoint))).parts("train", 9000)
    assert len(parts) == len(NAMES)
    found = [text for part in parts for text in part.documents()]
    assert found == texts(local / name for name in NAMES)


def test_counts_of_several_readers_equal_those_of_local_files(endpoint, local):
    endpoint.faults.extend(["cut", None, None] * 3)
    config = {"field": "text", "separator": "\n\n"}
    near, far = (
        count_pretokens(Corpus(CorpusConfig(paths=list(map(str, paths)), **config)), "gpt2", threads=4)
        for paths in ([local], ["s3://bucket/data"])
    )
    assert near.data.tolist() == far.data.tolist()
    assert near.counts.tolist() == far.counts.tolist()
    assert (near.n_bytes, near.n_documents) == (far.n_bytes, far.n_documents)


@pytest.mark.parametrize("kind", ["s3://bucket/{}", "hf://datasets/org/name/{}"])
def test_globs_and_folders_name_the_same_files_as_local_ones(kind, endpoint, local):
    tokenizers = {"ours/merges.txt", "ours/superbpe.json", "hf/tokenizer.json", "hf/tokenizer_config.json"}
    named_alike = {"deep/external.json", "deep/merges.txt", "deep/tokenizer.json", "deep/vocab.json"}
    for name in {"deep/g.txt"} | tokenizers | named_alike:
        (local / name).parent.mkdir(exist_ok=True)
        (local / name).write_text("deep")
        endpoint.objects |= {f"{place}/data/{name}": b"deep" for place in ("bucket", "org/name")}
    for place in ("bucket", "org/name"):
        endpoint.objects[f"{place}/data/README.md"] = b"no text"
    for pattern in ("*.jsonl", "*.jsonl*", "**/*.txt", "[a-c].*", "?.parquet"):
        near = sorted(file.relative_to(local).as_posix() for file, _ in Corpus(_paths(f"{local}/{pattern}")).files)
        far = [str(file).partition("data/")[2] for file, _ in Corpus(_paths(kind.format(f"data/{pattern}"))).files]
        assert far == near, pattern
    left = "^4 files of tokenizers left out: .*" + ".*, .*".join(map(re.escape, sorted(tokenizers)))
    for place in (str(local), kind.format("data")):
        with pytest.warns(UserWarning, match=left):
            found = {str(file) for file, _ in Corpus(_paths(place)).files}
        names = {*NAMES, "deep/g.txt"} | named_alike
        assert len(found) == len(names)
        assert all(any(file.endswith(f"/{name}") for file in found) for name in names)


def test_a_folder_that_cannot_be_listed_is_not_left_out(endpoint, monkeypatch):
    monkeypatch.setattr(remote, "ATTEMPTS", 2)
    endpoint.objects |= {f"bucket/data/{name}": b"x" for name in ("a.txt", "deep/b.txt")}
    endpoint.list_faults.extend([503] * 4)  # more than pyarrow's own attempts
    assert len(Corpus(_paths("s3://bucket/**/*.txt")).files) == 2
    assert not endpoint.list_faults
    endpoint.list_faults.extend([503] * 100)
    with pytest.raises(UserError, match=r"s3://bucket\S*: cannot be read after 2 attempts"):
        Corpus(_paths("s3://bucket/data"))


def _paths(*paths):
    return CorpusConfig(paths=list(paths))


def run(program, *arguments):
    """Output, error stream and exit code of a fresh process."""
    command, environment = [sys.executable, "-c", textwrap.dedent(program), *arguments], {"HF_HUB_OFFLINE": "0"}
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, env=os.environ | environment)
    return done.stdout, done.stderr, done.returncode


@pytest.fixture
def gcs(local, monkeypatch):
    """A fake of GCS in another process, because pyarrow holds the GIL during some requests."""
    program = """if True:
        import sys, pathlib
        from tests.tokenizer.corpus.endpoint import Endpoint
        server = Endpoint()
        for path in pathlib.Path(sys.argv[1]).iterdir():
            server.objects[f'bucket/data/{path.name}'] = path.read_bytes()
        server.faults.extend([503, None, None] * 5)
        print(server.url.removeprefix('http://'), flush=True)
        sys.stdin.read()
    """
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen([sys.executable, "-c", program, str(local)], **pipes) as process:
        where = {"anonymous": True, "scheme": "http", "endpoint_override": process.stdout.readline().strip()}
        monkeypatch.setattr("pyarrow.fs.GcsFileSystem", partial(GcsFileSystem, **where))
        yield
        process.stdin.close()


@pytest.mark.slow
def test_gcs_through_a_fake(gcs, local):
    assert texts(["gs://bucket/data/a.jsonl", "gs://bucket/data/[b-d].*"]) == texts(local / name for name in NAMES[:4])


@pytest.mark.parametrize("kind", quick_first(KINDS, 2))
def test_missing_files_and_denied_access_are_errors_without_credentials(kind, endpoint, local, monkeypatch):
    monkeypatch.setattr("huggingface_hub.utils._http.time.sleep", lambda _: None)
    monkeypatch.setattr(remote, "ATTEMPTS", 1)
    signed = "?X-Amz-Signature=signed" if "{endpoint}" in kind else ""
    with pytest.raises(UserError, match="no such file"):
        Corpus(_paths(kind.format("none.jsonl", endpoint=endpoint.url) + signed))
    for fault, message in [(403, "cannot be read: "), (500, "cannot be read")]:
        endpoint.faults.extend([fault] * 100)
        with pytest.raises(UserError, match=message) as error:
            texts([kind.format("a.jsonl", endpoint=endpoint.url) + signed])
        assert "a.jsonl: cannot" in str(error.value)
        assert "\n" not in str(error.value)
        assert not any(secret in str(error.value) for secret in SECRETS)
        endpoint.faults.clear()


def test_credentials_are_sent_but_not_kept(endpoint, local):
    server = endpoint.url.replace("//", "//me:pw@")
    corpus = Corpus(_paths(f"{server}/bucket/data/a.jsonl?X-Amz-Signature=signed", "s3://bucket/data/b.jsonl.gz"))
    assert sum(1 for _ in corpus.documents()) == 950
    assert any(headers.get("Authorization") == "Basic bWU6cHc=" for _, _, headers in endpoint.requests)
    assert any("X-Amz-Signature=signed" in path for _, path, _ in endpoint.requests)
    kept = repr(corpus) + str(corpus.identity()) + str(corpus.files)
    assert not any(secret in kept for secret in SECRETS)
    assert f"{endpoint.url}/bucket/data/a.jsonl" in kept


def test_the_identity_is_url_size_and_version(endpoint, local):
    def identity(*paths):
        return Corpus(_paths(*paths)).identity()["files"]

    before = identity("s3://bucket/data/a.jsonl", "hf://datasets/org/name/data/a.jsonl")
    assert before == identity("s3://bucket/data/a.jsonl", "hf://datasets/org/name/data/a.jsonl")
    assert [file["url"] for file in before] == ["s3://bucket/data/a.jsonl", "hf://datasets/org/name/data/a.jsonl"]
    assert all(file["bytes"] == (local / "a.jsonl").stat().st_size and file["version"] for file in before)
    content = endpoint.objects["bucket/data/a.jsonl"]
    endpoint.objects["bucket/data/a.jsonl"] = content.replace(b"document 3", b"document 4")
    assert identity("s3://bucket/data/a.jsonl")[0]["version"] != before[0]["version"]


@pytest.mark.parametrize(("kind", "when"), [(KINDS[0], "before"), (KINDS[1], "while")])
def test_a_changed_object_is_an_error(kind, when, endpoint, local):
    corpus = Corpus(_paths(kind.format("f.jsonl", endpoint=endpoint.url)))
    batches = corpus.batches(batch_bytes=1000)
    if when == "while":
        next(batches)
    endpoint.objects["bucket/data/f.jsonl"] = endpoint.objects["bucket/data/f.jsonl"].replace(b"document", b"Document")
    with pytest.raises(UserError, match="changed while it was"):
        list(batches)


def test_hub_files_are_read_at_one_commit(endpoint, local):
    corpus = Corpus(_paths("hf://datasets/org/name/data/a.jsonl"))
    assert str(corpus.files[0][0]) == f"hf://datasets/org/name@{COMMIT}/data/a.jsonl"
    list(corpus.documents())
    data = [(path, headers) for _, path, headers in endpoint.requests if "/resolve/" in path]
    assert {path for path, _ in data} == {f"/datasets/org/name/resolve/{COMMIT}/data/a.jsonl"}
    sent = [{name.lower(): value for name, value in headers.items()}["authorization"] for _, headers in data]
    assert set(sent) == {"Bearer hf_token"}
    for wrong in ("hf://org/name/a.jsonl", "hf://datasets/org"):
        with pytest.raises(UserError, match="named hf://datasets/ORGANISATION/NAME"):
            Corpus(_paths(wrong))


def test_little_is_read_of_files_that_are_not_read_to_their_end(endpoint, monkeypatch):
    monkeypatch.setattr(remote, "BLOCK_BYTES", 1 << 16)
    line = b'{"text": "%s"}\n' % (b"x" * 1000)
    endpoint.objects |= {f"bucket/{i}.jsonl": line * 4000 for i in range(9)}
    corpus = Corpus(CorpusConfig(paths=["s3://bucket/*.jsonl"], max_bytes=5000, batch_bytes=1000))
    assert len(list(corpus.documents())) == 5
    read = [headers["Range"] for _, _, headers in endpoint.requests if "Range" in headers]
    assert len(read) <= (remote.AHEAD + 2) * FILES_AHEAD + 2  # what is in memory, and what was taken of the first file
    for thread in threading.enumerate():
        if thread.name.startswith("remote"):
            thread.join(10)
            assert not thread.is_alive()


@pytest.mark.parametrize("kind", quick_first(KINDS))
def test_what_is_in_the_cache_is_not_fetched_again(kind, endpoint, local, tmp_path):
    cache, expected = tmp_path / "cache", texts(local / name for name in NAMES)
    assert next(Corpus(CorpusConfig(paths=urls(kind, endpoint), batch_bytes=10, cache=str(cache))).documents())
    wait_until_quiet(endpoint)
    assert not any(path.name.endswith(".partial") for path in cache.rglob("*"))
    assert texts(urls(kind, endpoint), cache=str(cache)) == expected
    endpoint.requests.clear()
    assert texts(urls(kind, endpoint), cache=str(cache)) == expected
    assert not [path for method, path, headers in endpoint.requests if method == "GET" and "Range" in headers]
    kept = next(path for path in cache.rglob("*-*") if path.is_file())
    kept.write_bytes(kept.read_bytes()[1:])
    with pytest.raises(UserError, match=f"{kept.name}.*delete it"):
        texts(urls(kind, endpoint), cache=str(cache))


def test_empty_files_and_unknown_servers(endpoint, tmp_path, monkeypatch):
    files = {"a.jsonl": b"", "b.jsonl": b'{"text": "one"}\n', "c.txt.gz": gzip.compress(b"c")}
    endpoint.objects |= {f"bucket/{name}": content for name, content in files.items()}
    for kind in ("s3://bucket/{}", f"{endpoint.url}/bucket/{{}}"):
        assert texts(map(kind.format, files)) == ["one", "c"]
    monkeypatch.setattr(remote, "ATTEMPTS", 2)
    with pytest.raises(UserError, match=r"http://127.0.0.1:9/a.jsonl: cannot be read after 2 attempts"):
        Corpus(_paths("http://127.0.0.1:9/a.jsonl?X-Amz-Signature=signed"))


def test_messages_about_an_empty_corpus_show_no_credentials(endpoint):
    endpoint.objects["bucket/a.jsonl"] = b'{"text": ""}\n'
    url = f"{endpoint.url}/bucket/a.jsonl?X-Amz-Signature=signed"
    for use in (
        lambda: list(Corpus(_paths(url)).batches()),
        lambda: Corpus(CorpusConfig(paths=url)),
        lambda: count_pretokens(url, "gpt2"),
    ):
        with pytest.raises(UserError, match=r"a\.jsonl") as error:
            use()
        assert "signed" not in str(error.value)


def test_urls_have_weights_and_ports():
    assert weighted("s3://bucket/a.jsonl:3", "sources") == ("s3://bucket/a.jsonl", 3)
    assert weighted("http://host:80", "sources") == ("http://host:80", 1)


def wait_until_quiet(endpoint):
    seen = -1
    while seen != len(endpoint.requests):
        seen = len(endpoint.requests)
        time.sleep(0.1)


def test_an_outage_does_not_delay_the_end_of_reading_parquet(endpoint, local, monkeypatch):
    """On Ctrl-C, the iterator is closed as well."""
    for name in ("FIRST_DELAY", "LONGEST_DELAY"):
        monkeypatch.setattr(remote, name, 300)
    records = [{"text": f"{i} " * 500} for i in range(200)]
    endpoint.objects["bucket/g.parquet"] = write_parquet(local / "g.parquet", records, row_group_size=20).read_bytes()
    batches = Corpus(_paths("s3://bucket/g.parquet")).batches()
    next(batches)
    wait_until_quiet(endpoint)
    endpoint.faults.extend([503] * 1000)
    next(batches)
    wait_until_quiet(endpoint)
    assert endpoint.used[503]
    start = time.monotonic()
    batches.close()
    assert time.monotonic() - start < 60


def test_only_the_columns_with_the_text_are_read_of_parquet(endpoint, local):
    records = [{"doc": {"text": f"{i} " * 50, "id": i}, "noise": random.Random(i).randbytes(5000)} for i in range(200)]
    path = write_parquet(local / "g.parquet", records, row_group_size=50, write_statistics=False)
    endpoint.objects["bucket/g.parquet"] = path.read_bytes()
    assert texts(["s3://bucket/g.parquet"], field="doc.text") == texts([path], field="doc.text")
    ranges = [re.findall(r"\d+", headers["Range"]) for _, _, headers in endpoint.requests if "Range" in headers]
    assert sum(int(end) - int(start) for start, end in ranges) < 200_000 < path.stat().st_size / 5


@pytest.mark.slow
def test_a_footer_may_be_long_and_its_damage_is_an_error(endpoint, local):
    columns = {f"{'long' * 1000}{i}": i for i in range(40)}
    path = write_parquet(local / "g.parquet", [{"text": "a", **columns}] * 3)
    endpoint.objects["bucket/g.parquet"] = content = path.read_bytes()
    assert len(content) > 3 * FOOTER_BYTES
    assert texts(["s3://bucket/g.parquet"]) == ["a"] * 3
    endpoint.objects["bucket/g.parquet"] = content[:-9] + b"\xff\xff" + content[-7:]
    with pytest.raises(UserError, match=r"s3://bucket/g.parquet: not a Parquet file"):
        texts(["s3://bucket/g.parquet"])


@pytest.mark.slow
def test_an_outage_does_not_delay_the_exit(endpoint, tmp_path):
    records = [{"text": f"{i} " * 500} for i in range(200)]
    endpoint.objects["bucket/g.jsonl"] = write_jsonl(tmp_path / "g.jsonl", records).read_bytes()
    program = """if True:
        import sys, warnings
        from tokenizer import Corpus, CorpusConfig
        from tokenizer.corpus import remote
        warnings.simplefilter('ignore')
        remote.FIRST_DELAY = remote.LONGEST_DELAY = 300
        remote.BLOCK_BYTES = 1 << 12
        batches = Corpus(CorpusConfig(paths=['s3://bucket/g.jsonl'], batch_bytes=100)).batches()
        for n in (1, 4):
            for _ in range(n): next(batches)
            print(flush=True)
            sys.stdin.readline()
    """
    pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    with subprocess.Popen([sys.executable, "-c", program], bufsize=0, **pipes) as process:
        kill = threading.Timer(120, process.kill)
        kill.start()
        process.stdout.readline()
        wait_until_quiet(endpoint)
        endpoint.faults.extend([503] * 1000)
        process.stdin.write(b"\n")
        process.stdout.readline()
        wait_until_quiet(endpoint)
        _, errors = process.communicate(b"\n")
        kill.cancel()
    assert endpoint.used[503]
    assert (process.returncode, errors) == (0, b"")


@pytest.mark.slow
def test_a_forked_process_reads_too_and_open_iterators_keep_no_process(endpoint, local):
    """Connections and locks of its parent are not used."""
    program = """
        import os, sys
        from tokenizer import Corpus, CorpusConfig
        corpus = Corpus(CorpusConfig(paths=sys.argv[1:], batch_bytes=100))
        assert sum(1 for _ in corpus.documents()) == 2850
        if (child := os.fork()) == 0:
            print(sum(1 for _ in corpus.documents()), flush=True)
            os._exit(0)
        os.waitpid(child, 0)
        batches = corpus.batches()
        next(batches)
    """
    paths = [path for kind in KINDS for path in urls(kind, endpoint, ["a.jsonl", "e.parquet"])]
    printed, errors, code = run(program, *paths)
    assert (printed, code) == ("2850\n", 0), errors


@pytest.mark.parametrize("where", ["", "nonsense", "http://127.0.0.1:9"])
def test_a_hub_that_cannot_be_reached_is_one_line(where, monkeypatch):
    monkeypatch.setenv("HF_ENDPOINT", where)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", where == "")
    start = time.monotonic()
    with pytest.raises(UserError, match=r"^hf://datasets/org/name/a\.jsonl: cannot be read: ") as error:
        Corpus(_paths("hf://datasets/org/name/a.jsonl"))
    assert "\n" not in str(error.value)
    assert time.monotonic() - start < 10
