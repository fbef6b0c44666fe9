"use strict";
// The tokenizer in the page: for tokenizers of one pass, the ids that Python's `encode_ordinary` gives.

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
    const column = columns[name] = width === 1 ? bytes.subarray(at, at + length) : new Uint32Array(length);
    if (width > 1)
      for (let plane = 0, p = at; plane < width; plane++)
        for (let i = 0; i < length; i++) column[i] |= bytes[p++] << (8 * plane);
    at += width * length;
  }
  return { ...header.facts, ...columns };
}

/** Splits text with a sequence of regexes, each applied within the previous one's pieces. */
function pieces(text, [regex, ...rest]) {
  if (!regex) return text ? [text] : [];
  const found = [];
  let gap = 0;
  for (const match of text.matchAll(regex)) {
    found.push(text.slice(gap, match.index), match[0]);
    gap = match.index + match[0].length;
  }
  found.push(text.slice(gap));
  return found.flatMap((piece) => pieces(piece, rest));
}

const utf8 = new TextEncoder();
const MOST_BYTES = 20000; // merging takes time in proportion to the square of a piece
const PAIR = 0x4000000; // more than any id

class Encoder {
  /**
   * @param data unpacked columns: `byteIds` (id + 1 of each byte, 0 for none), `left`, `right`, `made` by rank, `lengths`
   *   and `bytes` of all tokens by id, `ordinary` ids that are not merged (empty if all are); the fact `pattern`, a list
   *   of regex sources that defines the pieces. Throws if the browser does not know these regexes.
   */
  constructor(data) {
    Object.assign(this, data);
    this.patterns = data.pattern.map((source) => new RegExp(source, "gu"));
    this.ranks = new Map(Array.from(data.left, (left, rank) => [left * PAIR + data.right[rank], rank]));
    this.cache = new Map();
    this.whole = new Map();
    const starts = [0], decoder = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });
    for (const length of data.lengths) starts.push(starts.at(-1) + length);
    for (const id of data.ordinary)
      try { this.whole.set(decoder.decode(data.bytes.subarray(starts[id], starts[id + 1])), id); } catch { /* part of a character */ }
  }

  /** Ids of a text. Special tokens are treated as ordinary text; lone surrogates become U+FFFD. */
  encode(text) {
    return pieces(text.toWellFormed(), this.patterns).flatMap((piece) => {
      if (this.whole.has(piece)) return [this.whole.get(piece)];
      if (!this.cache.has(piece)) this.cache.set(piece, this.merge(Array.from(utf8.encode(piece), (byte) => this.byteIds[byte] - 1)));
      return this.cache.get(piece);
    });
  }

  /** Merges the neighbours of lowest rank, leftmost first, until none are left. */
  merge(ids) {
    const rankAt = (i) => this.ranks.get(ids[i] * PAIR + ids[i + 1]) ?? Infinity;
    const ranks = ids.map((_, i) => rankAt(i));
    for (;;) {
      let best = -1;
      for (let i = 0; i + 1 < ids.length; i++) if (ranks[i] < (ranks[best] ?? Infinity)) best = i;
      if (best < 0) return ids;
      ids.splice(best, 2, this.made[ranks[best]]);
      ranks.splice(best + 1, 1);
      ranks[best] = rankAt(best);
      if (best > 0) ranks[best - 1] = rankAt(best - 1);
    }
  }
}
