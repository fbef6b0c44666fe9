"""The elements of a page, without a browser."""

import json
from html.parser import HTMLParser


class Elements(HTMLParser):
    """Tags, event handlers, addresses, text outside of scripts, and JSON of a page."""

    def __init__(self, page):
        super().__init__()
        self.tags, self.handlers, self.addresses, self.json, self.text = [], [], [], [], ""
        self._script = None
        self.feed(page)

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.handlers += [name for name, _ in attrs if name.startswith("on")]
        self.addresses += [value or "" for name, value in attrs if name in ("src", "href", "srcset", "action")]
        self._script = dict(attrs).get("type") or "code" if tag == "script" else None

    def handle_endtag(self, tag):
        self._script = None if tag == "script" else self._script

    def handle_data(self, data):
        if self._script == "application/json":
            self.json.append(json.loads(data))
        elif self._script is None:
            self.text += data
