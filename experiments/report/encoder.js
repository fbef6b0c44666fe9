"use strict";
// The tokenizer in the page: gives the same ids as Python's `encode_ordinary`, using the packed merges and patterns.

/** Unpacks the output of `experiments.report.packing.pack`: a header and named columns of numbers. */
async function unpack(base64) {
  const text = atob(base64), zipped = new Uint8Array(text.length);
  for (let i = 0; i < text.length; i++) zipped[i] = text.charCodeAt(i);
  const stream = new Blob([zipped]).stream().pipeThrough(new DecompressionStream("deflate"));
  const bytes = new Uint8Array(await new Response(stream).arrayBuffer());
  const headerBytes = new DataView(bytes.buffer).getUint32(0, true);
  const header = JSON.parse(new TextDecoder().decode(bytes.subarray(4, 4 + headerBytes)));
  const columns = {};
  let at = 4 + headerBytes;
  for (const [name, width, length] of header.columns) {
    const planes = bytes.subarray(at, at + width * length);
    at += width * length;
    if (width === 1) columns[name] = planes;
    else {
      const column = columns[name] = new Uint32Array(length);
      for (let plane = 0, p = 0; plane < width; plane++)
        for (let i = 0; i < length; i++) column[i] |= planes[p++] << (8 * plane);
    }
  }
  return { ...header.facts, ...columns };
}

/** Hash table from pairs of ids to ranks: open addressing in typed arrays; the last rank of a repeated pair wins. */
class PairRanks {
  constructor(left, right, from, to) {
    let bits = 4;
    while (1 << bits < 2 * (to - from)) bits++;
    this.shift = 32 - bits;
    this.mask = (1 << bits) - 1;
    this.left = new Int32Array(1 << bits).fill(-1);
    this.right = new Int32Array(1 << bits);
    this.rank = new Int32Array(1 << bits);
    for (let rank = from; rank < to; rank++) {
      const at = this.place(left[rank], right[rank]);
      this.left[at] = left[rank];
      this.right[at] = right[rank];
      this.rank[at] = rank;
    }
  }

  place(left, right) {
    let at = (Math.imul(left, 0x9e3779b1) ^ Math.imul(right, 0x85ebca6b)) >>> this.shift;
    while (this.left[at] >= 0 && (this.left[at] !== left || this.right[at] !== right)) at = (at + 1) & this.mask;
    return at;
  }

  get(left, right) {
    const at = this.place(left, right);
    return this.left[at] < 0 ? -1 : this.rank[at];
  }
}

/** Binary min-heap of numbers. */
class Heap {
  constructor() { this.items = []; }

  push(item) {
    const items = this.items;
    let at = items.length;
    items.push(item);
    while (at > 0) {
      const parent = (at - 1) >> 1;
      if (items[parent] <= item) break;
      items[at] = items[parent];
      at = parent;
    }
    items[at] = item;
  }

  pop() {
    const items = this.items, lowest = items[0], item = items.pop(), n = items.length;
    if (n > 0) {
      let at = 0;
      for (let child = 1; child < n; child = 2 * at + 1) {
        if (child + 1 < n && items[child + 1] < items[child]) child++;
        if (items[child] >= item) break;
        items[at] = items[child];
        at = child;
      }
      items[at] = item;
    }
    return lowest;
  }
}

/** Splits text with a sequence of regexes, each applied within the previous one's pieces; ends are in UTF-16 units. */
function pieceEnds(text, regexes, level = 0, offset = 0, ends = []) {
  const cut = (from, to) => {
    if (from === to) return;
    if (level + 1 < regexes.length) pieceEnds(text.slice(from, to), regexes, level + 1, offset + from, ends);
    else ends.push(offset + to);
  };
  if (regexes.length === 0) { if (text) ends.push(text.length); return ends; }
  let gap = 0;
  for (const match of text.matchAll(regexes[level])) {
    cut(gap, match.index);
    gap = match.index + match[0].length;
    cut(match.index, gap);
  }
  cut(gap, text.length);
  return ends;
}

const utf8 = new TextEncoder();

class Encoder {
  /**
   * @param data unpacked columns: `byteIds` (id + 1 of each byte, 0 for none), `left`, `right`, `made` by rank, `lengths`
   *   and `bytes` of all tokens by id, `eligible` (by id; empty if all are); facts: `phase1`, `twoPass`, `wholePieces`,
   *   `pattern` and `fence` as lists of regex sources. With one pass, `pattern` defines the pieces.
   */
  constructor(data) {
    const n = data.left.length;
    Object.assign(this, data);
    this.phase1Ranks = new PairRanks(data.left, data.right, 0, data.twoPass ? data.phase1 : n);
    this.phase2Ranks = data.twoPass ? new PairRanks(data.left, data.right, data.phase1, n) : null;
    this.patterns = data.pattern.map((source) => new RegExp(source, "gu"));
    this.fences = data.fence.map((source) => new RegExp(source, "gu"));
    this.known = new Map(); // cache: ids of short pieces, most of which repeat
    this.starts = new Uint32Array(data.lengths.length + 1);
    for (let i = 0; i < data.lengths.length; i++) this.starts[i + 1] = this.starts[i] + data.lengths[i];
  }

  bytesOf(id) { return this.bytes.subarray(this.starts[id], this.starts[id + 1]); }

  /** Ids of a text. Special tokens are treated as ordinary text; lone surrogates become U+FFFD. */
  encode(given) {
    const text = given.toWellFormed();
    return this.twoPass ? this.encodeTwoPass(text) : this.encodePieces(text, (ids, out) => {
      for (const id of ids) out.push(id);
    });
  }

  /** Merges within the pattern's pieces, and passes each piece's ids to `take`. */
  encodePieces(text, take) {
    const out = [];
    let from = 0;
    for (const to of pieceEnds(text, this.patterns)) {
      const piece = text.slice(from, to);
      from = to;
      let ids = this.known.get(piece);
      if (!ids) {
        const whole = this.wholePieces ? this.wholes().get(piece) : undefined;
        ids = whole === undefined ? this.merge(this.byteSymbols(utf8.encode(piece)), this.phase1Ranks) : [whole];
        if (piece.length < 32 && this.known.size < 50000) this.known.set(piece, ids);
      }
      take(ids, out);
    }
    return out;
  }

  encodeTwoPass(text) {
    const cuts = new Set();
    let at = 0, from = 0;
    for (const to of pieceEnds(text, this.fences)) {
      at += utf8.encode(text.slice(from, to)).length;
      from = to;
      cuts.add(at);
    }
    // The seam between two tokens is open unless the fence cuts there or inside either token.
    const ids = [];
    let run = [], place = 0, closed = false;
    const flush = () => { for (const id of this.merge(run, this.phase2Ranks)) ids.push(id); run = []; };
    this.encodePieces(text, (piece) => {
      const takesPart = this.eligible.length === 0 || piece.length === 1 && this.eligible[piece[0]] === 1;
      for (const id of piece) {
        let cutInside = !takesPart;
        const start = place;
        place += this.lengths[id];
        for (let i = start + 1; i < place && !cutInside; i++) cutInside = cuts.has(i);
        if (closed || cutInside) flush();
        run.push(id);
        closed = cutInside || cuts.has(place);
      }
    });
    flush();
    return ids;
  }

  byteSymbols(bytes) {
    const symbols = new Array(bytes.length);
    for (let i = 0; i < bytes.length; i++) symbols[i] = this.byteIds[bytes[i]] - 1;
    return symbols;
  }

  /** Pieces that are a token themselves and bypass the merges. */
  wholes() {
    if (!this.wholeTokens) {
      const decoder = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });
      this.wholeTokens = new Map();
      for (const id of this.ordinary) {
        try { this.wholeTokens.set(decoder.decode(this.bytesOf(id)), id); } catch { /* part of a character */ }
      }
    }
    return this.wholeTokens;
  }

  /**
   * Merges neighbours by lowest rank, leftmost first, with a linked list and a heap that may contain stale entries.
   * `onMerge(place, right, rank)` is called for each merge; `place` and `right` are indices into `symbols`.
   */
  merge(symbols, ranks, onMerge) {
    const n = symbols.length;
    if (n < 2) return symbols;
    const ids = Int32Array.from(symbols), before = new Int32Array(n), after = new Int32Array(n);
    const rankAt = new Int32Array(n).fill(-1), heap = new Heap();
    const look = (place) => {
      const rank = rankAt[place] = after[place] < n ? ranks.get(ids[place], ids[after[place]]) : -1;
      if (rank >= 0) heap.push(rank * 0x200000 + place);
    };
    for (let i = 0; i < n; i++) { before[i] = i - 1; after[i] = i + 1; }
    for (let i = 0; i + 1 < n; i++) look(i);
    while (heap.items.length) {
      const item = heap.pop(), rank = Math.floor(item / 0x200000), place = item % 0x200000;
      if (rankAt[place] !== rank) continue;
      const right = after[place];
      ids[place] = this.made[rank];
      after[place] = after[right];
      if (after[place] < n) before[after[place]] = place;
      rankAt[right] = -1;
      if (onMerge) onMerge(place, right, rank);
      look(place);
      if (before[place] >= 0) look(before[place]);
    }
    const merged = [];
    for (let i = 0; i < n; i = after[i]) merged.push(ids[i]);
    return merged;
  }

  /** Merge tree of a token: {id, parts}, where parts are the two tokens of its last merge; empty for a byte. */
  derivation(id) {
    let nodes = Array.from(this.byteSymbols(this.bytesOf(id)), (byte) => ({ id: byte, parts: [] }));
    for (const ranks of this.twoPass ? [this.phase1Ranks, this.phase2Ranks] : [this.phase1Ranks]) {
      const tree = nodes.slice(), gone = new Set();
      this.merge(nodes.map((node) => node.id), ranks, (place, right, rank) => {
        tree[place] = { id: this.made[rank], rank, parts: [tree[place], tree[right]] };
        gone.add(right);
      });
      nodes = tree.filter((_, place) => !gone.has(place));
    }
    return nodes;
  }
}

const MOST_BYTES = 0x200000; // `merge` packs positions into 21 bits
