"""A loopback server of objects that speaks enough of S3, GCS, the hub's API and plain HTTP, with faults on request."""

import hashlib
import json
import re
import threading
import time
from collections import Counter, deque
from functools import cache
from pathlib import PurePosixPath
from xml.sax.saxutils import escape

from werkzeug import Request, Response
from werkzeug.serving import WSGIRequestHandler, make_server

COMMIT = "c" * 40
CODES = {403: "AccessDenied", 429: "TooManyRequests", 500: "InternalError", 503: "SlowDown"}
SECRETS = ("AKIDSECRET", "verysecret", "X-Amz-Signature=signed", "hf_token", "me:pw")


class Handler(WSGIRequestHandler):
    disable_nagle_algorithm = True

    def log(self, *_):
        pass


class Endpoint:
    """Attributes: `objects` by "bucket/key"; `faults` and others, each used up by a request; `requests`."""

    def __init__(self):
        self.objects, self.requests = {}, []
        self.faults, self.list_faults, self.upload_faults = deque(), deque(), deque()
        self.delay = 0.0  # seconds per request for data
        self.wrong, self.wrong_from = None, 0  # how answers for ranges from a byte on are wrong, with headers that fit
        self.parts = {}  # of uploads, by (upload, number)
        self.used = Counter()
        self.server = make_server("127.0.0.1", 0, Request.application(self.answer), True, request_handler=Handler)
        self.url = f"http://127.0.0.1:{self.server.port}"
        threading.Thread(target=self.server.serve_forever, args=(0.01,), daemon=True).start()

    def close(self):
        self.server.shutdown()
        self.server.server_close()

    def answer(self, request):
        self.requests.append((request.method, request.environ["REQUEST_URI"], dict(request.headers)))
        path = request.path.strip("/")
        if request.method in ("PUT", "POST"):
            return self.write(path, request)
        if path.startswith("api/datasets/"):
            return self.hub(*path.split("/")[2:])
        if found := re.fullmatch("storage/v1/b/([^/]*)/o/?(.*)", path):
            return self.gcs(*found.groups(), request)
        if "list-type" in request.args:
            return self.faulty(self.list(path, **request.args), self.list_faults)
        return self.read(re.sub(r"^datasets/(.*)/resolve/[^/]*/", r"\1/", path), request)

    def read(self, key, request):
        if (content := self.objects.get(key)) is None:
            return Response("<Error><Code>NoSuchKey</Code></Error>", 404)
        response = Response(content, headers={"ETag": f'"{_tag(content)}"'})
        response.last_modified = _time(content)
        response.make_conditional(request, accept_ranges=True, complete_length=len(content))
        if response.status_code != 206:
            return response
        range_ = re.fullmatch(r"bytes=(\d+)-(\d+)", request.headers["Range"])
        if self.wrong and range_ and int(range_[1]) >= self.wrong_from:
            return self.wrongly(response, content, int(range_[1]), int(range_[2]) + 1)
        return self.faulty(response, self.faults)

    def wrongly(self, response, content, start, end):
        """The response with other bytes, and headers that fit them."""
        self.used[self.wrong] += 1
        part, before = content[start:end], content[max(0, start - 64) : end - 64]
        half = part[: len(part) // 2]
        wrong = {"short": half, "zeros": half.ljust(len(part), b"\0"), "long": part * 2, "none": b""}
        wrong = wrong.get(self.wrong, before)
        response.response, response.headers["Content-Length"] = [wrong], len(wrong)
        if self.wrong == "repeated":  # "shifted" claims to be what was asked for
            response.headers["Content-Range"] = f"bytes {start - 64}-{end - 65}/{len(content)}"
        return response

    def write(self, key, request):
        content, upload = request.get_data(), request.args.get("uploadId")
        if "uploads" in request.args:
            return _xml(f"<UploadId>{len(self.requests)}</UploadId>")
        if request.method == "POST":
            numbers = re.findall(r"<PartNumber>(\d+)<", content.decode())
            self.objects[key] = b"".join(self.parts[upload, number] for number in numbers)
            return _xml()
        response = self.faulty(_xml(ETag=f'"{_tag(content)}"'), self.upload_faults)
        if response.status_code == 200 and not response.headers.get("Connection"):
            self.parts[upload, request.args["partNumber"]] = content
        return response

    def faulty(self, response, faults):
        """The response, or the next fault instead of it."""
        fault = faults.popleft() if faults else None
        time.sleep(0.1 if fault == "slow" else self.delay)
        self.used[fault] += 1
        if fault in CODES:
            return Response(f"<Error><Code>{CODES[fault]}</Code></Error>", fault)
        content = b"".join(response.iter_encoded())
        response.response = [content]
        if fault == "cut":
            response.headers["Connection"], response.response = "close", [content[: len(content) // 2]]
        return response

    def keys(self, prefix):
        return sorted(key.removeprefix(prefix) for key in list(self.objects) if key.startswith(prefix))

    def list(self, bucket, prefix="", delimiter="\0", **_):
        found = set()
        for key in self.keys(f"{bucket}/{prefix}"):
            folder, deeper, _ = key.partition(delimiter)
            content = self.objects[f"{bucket}/{prefix}{key}"]
            about = f"<Size>{len(content)}</Size><LastModified>{_iso(content)}</LastModified>"
            if deeper:
                found.add(f"<CommonPrefixes><Prefix>{escape(prefix + folder + deeper)}</Prefix></CommonPrefixes>")
            else:
                found.add(f"<Contents><Key>{escape(prefix + key)}</Key>{about}</Contents>")
        return _xml("".join(found) + f"<KeyCount>{len(found)}</KeyCount>")

    def gcs(self, bucket, key, request):
        if "alt" in request.args:
            return self.read(f"{bucket}/{key}", request)
        prefix, found = key or request.args.get("prefix", ""), {}
        for name in (prefix + rest for rest in self.keys(f"{bucket}/{prefix}")):
            content = self.objects[f"{bucket}/{name}"]
            about = {"kind": "storage#object", "bucket": bucket, "name": name, "size": str(len(content))}
            found[name] = about | {"updated": _iso(content), "timeCreated": _iso(content), "generation": "1"}
        return _json(found.get(key), 200 if key in found else 404) if key else _json({"items": [*found.values()]})

    def hub(self, organisation, name, what="revision", _revision="", *folder):
        if what == "revision":
            return _json({"id": f"{organisation}/{name}", "sha": COMMIT, "siblings": []})
        found, inside = {}, "".join(f"{part}/" for part in folder)
        for key in self.keys(f"{organisation}/{name}/{inside}"):
            content = self.objects[f"{organisation}/{name}/{inside}{key}"]
            for parent in list(PurePosixPath(key).parents)[:-1]:
                found[parent] = {"type": "directory", "oid": "0", "path": f"{inside}{parent}"}
            found[key] = {"type": "file", "oid": _tag(content), "size": len(content), "path": f"{inside}{key}"}
        return _json(list(found.values()))


def _xml(content="", **headers):
    # Arrow accepts a completed upload by this name; the others are not read.
    answer = f"<CompleteMultipartUploadResult>{content}</CompleteMultipartUploadResult>"
    return Response(answer, mimetype="application/xml", headers=headers)


def _json(value, status=200):
    return Response(json.dumps(value), status, mimetype="application/json")


def _time(content):
    """A time that changes with the content."""
    return int(_tag(content)[:7], 16)


def _iso(content):
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(_time(content)))


@cache
def _tag(content):
    return hashlib.md5(content, usedforsecurity=False).hexdigest()
