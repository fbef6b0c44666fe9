"use strict";
// The vocabulary page: search over all tokens, details of each token, live segmentation.

const SUPERWORD = 1, PARTIAL = 2, SPECIAL = 4, UNREACHABLE = 8, UNUSED = 16, PHASE2 = 32, RESIDUE = 64;
const SHOWN = 100, MOST_SPANS = 6000;
const grouped = (value) => value.toLocaleString("en");

/** Decodes UTF-8; invalid bytes become hex escapes, as with Python's "backslashreplace". */
const strict = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });
function display(bytes) {
  try { return strict.decode(bytes); } catch { /* part of a character */ }
  let text = "";
  for (let at = 0, length; at < bytes.length; at += length || 1) {
    for (length = 4; length; length--)
      try { text += strict.decode(bytes.subarray(at, at + length)); break; } catch { /* shorter */ }
    if (!length) text += "\\x" + bytes[at].toString(16).padStart(2, "0");
  }
  return text;
}

class Side {
  constructor(data) {
    this.data = data;
    this.size = data.lengths.length;
    this.starts = Uint32Array.from({ length: this.size + 1 });
    for (let i = 0; i < this.size; i++) this.starts[i + 1] = this.starts[i] + data.lengths[i];
    this.rankOf = new Map(Array.from(data.made, (id, rank) => [id, rank]).reverse());
    this.encoder = this.live();
  }

  /** An encoder, if the browser knows the regexes of a named pattern and segments the sample as Python does; or null. */
  live() {
    if (!this.data.pattern) return null;
    try {
      const encoder = new Encoder(this.data), ids = encoder.encode(byId("field").value);
      return ids.length === this.data.sample.length && ids.every((id, i) => id === this.data.sample[i]) ? encoder : null;
    } catch { return null; }
  }

  text(id) {
    return this.data.specials[id] ?? display(this.data.bytes.subarray(this.starts[id], this.starts[id + 1]));
  }
}

/** Substring search over all tokens: their texts are joined into one string, so that one pass of `indexOf` is enough. */
class Search {
  constructor(side) {
    this.side = side;
    this.texts = Array.from({ length: side.size }, (_, id) => side.text(id));
    [this.exact, this.exactStarts] = Search.join(this.texts);
    [this.folded, this.foldedStarts] = Search.join(this.texts.map((text) => text.toLowerCase()));
    this.orders = {};
  }

  static join(texts) {
    const starts = new Uint32Array(texts.length + 1);
    for (let i = 0; i < texts.length; i++) starts[i + 1] = starts[i] + texts[i].length + 1;
    return [texts.join("\uffff") + "\uffff", starts];
  }

  /** All ids in an order, cached. */
  order(by) {
    if (!this.orders[by]) {
      const ids = Uint32Array.from({ length: this.side.size }, (_, id) => id), { count, lengths } = this.side.data;
      if (by === "count") ids.sort((a, b) => count[b] - count[a] || a - b);
      if (by === "length") ids.sort((a, b) => lengths[b] - lengths[a] || a - b);
      this.orders[by] = ids;
    }
    return this.orders[by];
  }

  /** An array with a 1 for every id that matches the query. */
  matches(query) {
    const found = new Uint8Array(this.side.size);
    if (query === "") return found.fill(1);
    if (/^#\d+$/.test(query)) { found[Number(query.slice(1))] = 1; return found; }
    if (query.length > 2 && query.startsWith("/") && query.endsWith("/")) {
      const regex = new RegExp(query.slice(1, -1), "u");
      for (let id = 0; id < found.length; id++) if (regex.test(this.texts[id])) found[id] = 1;
      return found;
    }
    const folds = query === query.toLowerCase();
    const [text, starts] = folds ? [this.folded, this.foldedStarts] : [this.exact, this.exactStarts];
    let id = 0;
    for (let at = text.indexOf(query); at >= 0; at = text.indexOf(query, starts[id])) {
      while (starts[id + 1] <= at) id++;
      found[id++] = 1;
    }
    return found;
  }

  /** Ids that match the query and the filter `keep`, in an order. */
  run(query, by, keep) {
    const found = this.matches(query);
    return Array.from(this.order(by)).filter((id) => found[id] && keep(id));
  }
}

const read = (id) => unpack(byId(id).textContent);
const about = JSON.parse(byId("about").textContent), kinds = JSON.parse(byId("kinds").textContent);

/** Segments the text of the field with every tokenizer. */
function segmentation(sides, open) {
  const field = byId("field"), panes = [...document.querySelectorAll(".pane")];
  const show = () => {
    const text = field.value.toWellFormed(), n = utf8.encode(text).length;
    panes.forEach((pane, which) => {
      const side = sides[which], place = pane.querySelector(".text"), tally = pane.querySelector(".tally");
      if (!side) return;
      if (n > MOST_BYTES) {
        tally.textContent = `the text has ${grouped(n)} bytes; the limit is ${grouped(MOST_BYTES)}`;
        place.replaceChildren();
        return;
      }
      const ids = side.encoder ? side.encoder.encode(text) : text === field.defaultValue ? Array.from(side.data.sample) : null;
      if (!ids) {
        tally.textContent = "the browser does not cut text with this tokenizer's pattern; the page has its tokens for the first text only";
        place.replaceChildren();
        return;
      }
      let superwords = 0;
      for (const id of ids) superwords += side.data.flags[id] & SUPERWORD;
      tally.textContent = `${grouped(ids.length)} tokens, ${(n / Math.max(ids.length, 1)).toFixed(2)} bytes each, ${grouped(superwords)} superwords`;
      const spans = document.createDocumentFragment();
      for (const id of ids.slice(0, MOST_SPANS)) {
        const flags = side.data.flags[id];
        const span = element("i", { title: `id ${id}` }, visible(side.text(id)).replaceAll("↵", "↵\n"));
        if (flags & (SUPERWORD | PARTIAL)) span.className = flags & SUPERWORD ? "s" : "p";
        if (which === 0) span.dataset.id = id;
        spans.append(span);
      }
      place.replaceChildren(spans);
      if (ids.length > MOST_SPANS) place.append(`… and ${grouped(ids.length - MOST_SPANS)} more`);
    });
  };
  let due = 0;
  field.addEventListener("input", () => {
    cancelAnimationFrame(due);
    due = requestAnimationFrame(show);
  });
  field.disabled = false;
  show();
}

/** Details of a token. */
class Detail {
  constructor(sides, search) {
    Object.assign(this, { sides, search, side: sides[0], place: byId("detail") });
    this.contexts = null;
  }

  async show(id) {
    const { data } = this.side, flags = data.flags[id], text = this.side.text(id);
    const bytes = data.bytes.subarray(this.side.starts[id], this.side.starts[id + 1]);
    const facts = [["id", String(id)]];
    if (flags & SPECIAL) facts.push(["kind", "special token"]);
    else {
      facts.push(["rank", data.rank[id] ? grouped(data.rank[id] - 1) + (data.phases ? `, phase ${flags & PHASE2 ? 2 : 1}` : "") : bytes.length === 1 ? "a byte" : "no merge"]);
      facts.push(["bytes", `${bytes.length}: ${Array.from(bytes.subarray(0, 64), (b) => b.toString(16).padStart(2, "0")).join(" ")}${bytes.length > 64 ? " …" : ""}`]);
      facts.push(["words", String(text.split(" ").filter(Boolean).length)]);
    }
    if (data.kind[id]) facts.push(["superword", kinds[data.kind[id]]]);
    if (flags & PARTIAL) facts.push(["UTF-8", "part of a character"]);
    if (flags & UNREACHABLE) facts.push(["unreachable", "encoding its own text does not produce it, alone or between other characters"]);
    if (data.count) {
      const share = 1e6 * data.count[id] / data.tokens, millionth = share < 100 ? Number(share.toPrecision(2)) : grouped(Math.round(share));
      facts.push(["count in the text", `${grouped(data.count[id])}${data.count[id] ? `, ${millionth} per million tokens` : ": never produced"}`]);
    }
    if (data.host?.[id]) {
      const most = element("span", {}, `${grouped(data.inside[id])}${flags & RESIDUE ? ", a residue" : ""}; most in `, this.link(data.host[id] - 1));
      facts.push(["inside tokens", most]);
    }
    if (!(flags & SPECIAL))
      for (let i = 1; i < this.sides.length; i++) facts.push([`in ${about.labels[i]}`, this.inOther(this.sides[i], data.missing[id] & (1 << (i - 1)), text, flags)]);
    const parts = [
      element("p", { class: "big" }, element("span", { class: flags & SUPERWORD ? "token" : "token plain" }, visible(text))),
      element("dl", {}, ...facts.flatMap(([name, value]) => [element("dt", {}, name), element("dd", {}, value)])),
    ];
    if (data.group[id]) parts.push(element("h3", {}, "Near-duplicates"), this.duplicates(id));
    if (bytes.length > 1 && this.side.rankOf.has(id)) parts.push(element("h3", {}, "Merge tree"), this.tree(id));
    this.place.replaceChildren(...parts);
    this.place.scrollTop = 0;
    for (const row of byId("results").children) row.setAttribute("aria-current", row.dataset.id === String(id));
    const contexts = await this.around(id);
    if (contexts.length && this.place.firstChild === parts[0])
      this.place.append(element("h3", {}, "In the text"), element("ul", { class: "contexts" }, ...contexts));
  }

  inOther(other, missing, text, flags) {
    if (!missing) return "yes";
    if (!other.encoder || flags & PARTIAL || text.length > MOST_BYTES / 4) return "no";
    const ids = other.encoder.encode(text);
    const parts = element("span", { class: "text" }, ...ids.map((i) => element("i", { title: `id ${i}` }, visible(other.text(i)))));
    return element("span", {}, `no: ${ids.length} tokens, `, parts);
  }

  duplicates(id) {
    const { group } = this.side.data, found = [];
    for (let i = 0; i < group.length && found.length < 40; i++) if (group[i] === group[id] && i !== id) found.push(i);
    return element("p", {}, ...found.flatMap((i) => [this.link(i), " "]));
  }

  link(id) {
    return element("button", { type: "button", class: this.side.data.flags[id] & SUPERWORD ? "token" : "token plain", "data-id": id }, visible(this.side.text(id)));
  }

  tree(id) {
    const item = (token, depth) => {
      const line = element("li", {}, this.link(token)), rank = this.side.rankOf.get(token);
      if (rank === undefined) return line;
      line.append(element("small", {}, `merge ${grouped(rank)}`));
      const parts = () => element("ul", {}, ...[this.side.data.left[rank], this.side.data.right[rank]].map((part) => item(part, depth + 1)));
      const rest = depth < 3 ? parts() : element("details", {}, element("summary", {}, "2 parts"));
      // Built on demand: a tree may have 100,000 nodes.
      if (depth >= 3) rest.addEventListener("toggle", () => rest.append(parts()), { once: true });
      line.append(rest);
      return line;
    };
    return element("ul", { class: "tree" }, item(id, 0));
  }

  async around(id) {
    if (!byId("data-contexts")) return [];
    this.contexts ??= read("data-contexts");
    const { tokens, places, starts, text, reach } = await this.contexts;
    let at = lowest(tokens, id), shift = 0;
    const { host, place: placeIn } = this.side.data, found = [];
    if (tokens[at] !== id && host[id]) { // it occurs only inside other tokens
      shift = placeIn[id];
      at = lowest(tokens, host[id] - 1);
    }
    for (const token = tokens[at]; at < tokens.length && tokens[at] === token && (token === id || token === host[id] - 1); at++) {
      const place = places[at] + shift, end = place + this.side.data.lengths[id], excerpt = lowest(starts, place + 1);
      const from = Math.max(starts[excerpt - 1], place - reach), to = Math.min(starts[excerpt] ?? text.length, end + reach);
      // Drop characters that are cut at the ends of the excerpt.
      const cut = (low, high) => visible(new TextDecoder().decode(text.subarray(low, high)).replace(/^\ufffd+|\ufffd+$/g, ""));
      found.push(element("li", {}, cut(from, place), element("mark", {}, visible(this.side.text(id))), cut(end, to)));
    }
    return found;
  }
}

/** Index of the first element of a sorted array that is not below a number. */
function lowest(sorted, number) {
  let low = 0, high = sorted.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (sorted[middle] < number) low = middle + 1; else high = middle;
  }
  return low;
}

/** Sets up the search field, its results and its filters. */
function searching(side, search, detail) {
  const query = byId("query"), only = byId("only"), order = byId("order"), results = byId("results"), more = byId("more");
  const { flags, count, kind, group, lengths, missing } = side.data;
  let ids = [], shown = 0;
  const filters = {
    "": (id) => !(flags[id] & UNUSED), superword: (id) => flags[id] & SUPERWORD, unreachable: (id) => flags[id] & UNREACHABLE,
    partial: (id) => flags[id] & PARTIAL, special: (id) => flags[id] & SPECIAL,
    residue: (id) => flags[id] & RESIDUE, group: (id) => group[id], never: (id) => count[id] === 0 && !(flags[id] & (SPECIAL | UNUSED)),
  };
  const extend = () => {
    const rows = document.createDocumentFragment();
    for (const id of ids.slice(shown, shown + SHOWN)) {
      const what = element("span", { class: "token" + (flags[id] & SUPERWORD ? "" : " plain") }, visible(search.texts[id]).slice(0, 200));
      const number = order.value === "count" ? grouped(count[id]) : order.value === "length" ? `${lengths[id]} B` : `#${id}`;
      rows.append(element("button", { type: "button", class: "row", "data-id": id }, element("span", { class: "what" }, what), element("span", { class: "number" }, number)));
    }
    shown = Math.min(shown + SHOWN, ids.length);
    results.append(rows);
    more.hidden = shown === ids.length;
  };
  const run = () => {
    const label = only.selectedOptions[0].dataset.kind, which = kinds.indexOf(label);
    const lacking = only.value.startsWith("missing ") ? 1 << Number(only.value.slice(8)) : 0;
    const keep = label ? (id) => kind[id] === which : lacking ? (id) => missing[id] & lacking : filters[only.value];
    try {
      ids = search.run(query.value, order.value, keep);
      byId("found").textContent = ids.length === 1 ? "1 token" : `${grouped(ids.length)} tokens`;
    } catch (error) {
      ids = [];
      byId("found").textContent = error.message;
    }
    shown = 0;
    results.replaceChildren();
    extend();
  };
  query.addEventListener("input", run);
  for (const choice of [only, order]) choice.addEventListener("change", run);
  more.addEventListener("click", extend);
  document.addEventListener("click", (event) => {
    const id = event.target.closest("[data-id]")?.dataset.id;
    if (id === undefined) return;
    detail.show(Number(id));
    if (!event.target.closest("#search-tokens")) byId("search-tokens").scrollIntoView({ behavior: matchMedia("(prefers-reduced-motion: reduce)").matches ? "auto" : "smooth" });
  });
  for (const field of [query, only, order]) field.disabled = false;
  run();
}

/** Lists with a field hide the rows that do not contain its text. */
for (const field of document.querySelectorAll("input[data-rows]")) {
  field.addEventListener("input", () => {
    const query = field.value, folds = query === query.toLowerCase();
    for (const row of byId(field.dataset.rows).rows)
      row.hidden = !(folds ? row.dataset.text.toLowerCase() : row.dataset.text).includes(query);
  });
  field.disabled = false;
}

(async () => {
  // Let the browser paint the page first.
  await new Promise((resolve) => requestAnimationFrame(() => setTimeout(resolve)));
  const packed = about.labels.map((_, i) => `data-${i}`);
  const sides = (await Promise.all(packed.map(read))).map((data) => new Side(data));
  const search = new Search(sides[0]), detail = new Detail(sides, search);
  searching(sides[0], search, detail);
  segmentation(sides);
  document.documentElement.dataset.ready = "true";
})();
