"use strict";
// Shared by all pages: charts in the page's colours, light or dark as the system is, and downloads of data and pictures.

const byId = (id) => document.getElementById(id);

const pictures = { "\n": "↵", "\r": "␍", "\t": "⇥", "\x7f": "␡" };
const picture = (c) => pictures[c] ?? (c < " " ? String.fromCharCode(0x2400 + c.charCodeAt(0)) : `\\u${c.charCodeAt(0).toString(16).padStart(4, "0")}`);
/** Makes control and bidirectional characters visible, except line feeds and tabs, like `page.harmless`. */
const harmless = (text) => text.replace(/[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]/g, picture);
/** Makes all control characters visible, like `page.visible`. */
const visible = (text) => harmless(text).replace(/[\n\t]/g, picture);
/** An element with text and children; strings become text, never markup. */
function element(name, attributes, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) if (value !== undefined) made.setAttribute(key, value);
  made.append(...children.map((child) => typeof child === "string" ? harmless(child) : child));
  return made;
}

function download(name, type, content) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([content], { type }));
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10000);
}

/** Rows with the same keys, as CSV (RFC 4180). */
function csv(rows) {
  const names = Object.keys(rows[0] ?? {});
  const field = (value) => {
    const text = value === null || value === undefined ? "" : String(value);
    return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
  };
  return [names, ...rows.map((row) => names.map((name) => row[name]))].map((row) => row.map(field).join(",") + "\r\n").join("");
}

/** Labels the cells of tables that become cards on a phone with the headings of their columns. */
function labelCells() {
  for (const table of document.querySelectorAll(".scroll table")) {
    const names = Array.from(table.tHead?.rows[0]?.cells ?? [], (cell) => Array.from(cell.childNodes, (node) => node.textContent).join(" ").trim());
    for (const row of table.tBodies[0]?.rows ?? []) for (const [i, cell] of [...row.cells].entries()) cell.dataset.label ??= names[i];
  }
}
labelCells();

/** Lists the headings of a long page after its header. */
(() => {
  const headings = [...document.querySelectorAll("main h2")];
  if (headings.length < 2) return;
  const links = headings.map((heading, i) => {
    const part = heading.closest("[id]");
    const place = part && part.querySelector("h2") === heading ? part : heading;
    place.id ||= `part-${i + 1}`;
    return element("li", {}, element("a", { href: `#${place.id}` }, heading.textContent));
  });
  document.querySelector("main > header").append(element("nav", { class: "contents", "aria-label": "On this page" }, element("ul", {}, ...links)));
})();

// Print closed parts too.
addEventListener("beforeprint", () => { for (const part of document.querySelectorAll("details")) part.open = true; });

const views = {};

/** JSON that is also an expression of Vega, whose strings may not contain line separators. */
const asciiJson = (value) => JSON.stringify(value).replace(/[^ -~]/g, (c) => `\\u${c.charCodeAt(0).toString(16).padStart(4, "0")}`);

/** Fits a chart to a width: columns and lines of its legends, lines of its titles and names, number of ticks, height. */
function fitted(spec, width) {
  const CHARACTER = 7.5, LINE = 14; // pixels, about
  const fits = (text, pixels) => text.trimEnd().length * CHARACTER <= pixels;
  const wrap = (text, pixels) => {
    const lines = [""], words = text.split(/(?<=[ \-/])/);
    for (const part of words.flatMap((word) => fits(word, pixels) ? [word] : word.split(/(?<=[_=,])/))) {
      const last = lines.length - 1;
      if (!lines[last] || fits(lines[last] + part, pixels)) lines[last] += part;
      else lines.push(part);
    }
    return lines.map((line) => line.trimEnd());
  };
  const wrapped = (names, pixels) => `${asciiJson(names.map((name) => wrap(name, pixels)))}[indexof(${asciiJson(names)}, datum.value)]`;
  const nodes = [];
  const visit = (node) => {
    if (!node || typeof node !== "object") return;
    nodes.push(node);
    for (const [key, child] of Object.entries(node)) if (key !== "datasets") visit(child);
  };
  visit(spec);
  let left = 60; // of the plot
  for (const { x, y } of nodes) {
    if (x?.title) x.title = wrap(x.title, 0.72 * width);
    if (x?.axis?.tickCount) x.axis.tickCount = Math.min(x.axis.tickCount, Math.max(2, Math.floor(width / 90)));
    if (!y?.axis?.labelLimit) continue;
    const limit = y.axis.labelLimit = Math.min(y.axis.labelLimit, 0.4 * width);
    left = Math.max(left, limit);
    y.axis.labelExpr = wrapped(y.sort, limit);
    spec.height = Math.max(spec.height, y.sort.length * (LINE * Math.max(...y.sort.map((name) => wrap(name, limit).length)) + 6));
  }
  for (const { legend } of nodes) {
    if (!legend?.values) continue;
    const longest = Math.max(...legend.values.map((name) => name.length)), symbol = 42;
    legend.columns = Math.max(1, Math.min(legend.values.length, Math.floor((width - left + 60) / (CHARACTER * longest + symbol))));
    legend.labelLimit = width;
    if (CHARACTER * longest + symbol > width - left) legend.labelExpr = wrapped(legend.values, width - left - symbol);
  }
  return spec;
}

/** Draws each chart when it is scrolled near. Colours are CSS variables, so they follow light, dark and print. */
function drawCharts() {
  const { specs, paper } = JSON.parse(document.getElementById("charts").textContent);
  const specOf = (name) => structuredClone(specs[name]);
  const draw = (name) => {
    if (name in views) return;
    const place = byId(`chart-${name}`);
    const font = getComputedStyle(document.body).fontFamily, soft = "var(--soft)", line = "var(--line)", ink = "var(--ink)";
    const text = { labelColor: soft, titleColor: soft, labelFont: font, titleFont: font, titleFontWeight: 500, labelFontSize: 12, titleFontSize: 12 };
    const config = {
      background: null, font, view: { stroke: null },
      range: { category: ["var(--c0)", "var(--c1)", "var(--c2)", "var(--c3)", "var(--c4)", "var(--c5)", "var(--c6)", "var(--c7)"] },
      axis: { ...text, gridColor: line, domainColor: line, tickColor: line, titlePadding: 10, labelPadding: 5 },
      legend: { ...text, labelColor: ink, labelFontSize: 13, labelLimit: 400 },
      text: { fill: ink, font, fontSize: 12 },
      bar: { color: "var(--c1)" },
    };
    const options = { config, actions: false, ast: true, renderer: "svg", tooltip: { disableDefaultStyle: true } };
    views[name] = vegaEmbed(place, fitted(specOf(name), place.clientWidth), options).then(({ view }) => view);
  };
  const near = new IntersectionObserver((entries) => {
    for (const { isIntersecting, target } of entries) if (isIntersecting) draw(target.id.slice("chart-".length));
  }, { rootMargin: "300px" });
  for (const name of Object.keys(specs)) near.observe(document.getElementById(`chart-${name}`));
  // Draw the other charts once the page is painted: printing needs all of them.
  addEventListener("load", () => (window.requestIdleCallback ?? setTimeout)(() => Object.keys(specs).forEach(draw)));

  for (const tools of document.querySelectorAll(".tools[data-figure]")) {
    const name = tools.dataset.figure, title = tools.nextElementSibling.textContent;
    const forPaper = async () => {
      const spec = { ...specOf(name), width: paper.width };
      return (await vegaEmbed(document.createElement("div"), spec, { config: paper.config, actions: false, ast: true })).view;
    };
    const offer = (format, make) => {
      const button = tools.appendChild(document.createElement("button"));
      button.type = "button";
      button.textContent = format;
      button.setAttribute("aria-label", `${title}: download as ${format}`);
      button.addEventListener("click", make);
    };
    offer("CSV", () => download(`${name}.csv`, "text/csv", csv(specOf(name).datasets.rows)));
    offer("SVG", async () => download(`${name}.svg`, "image/svg+xml", await (await forPaper()).toSVG()));
    offer("PNG", async () => {
      const canvas = await (await forPaper()).toCanvas(paper.scale);
      canvas.toBlob((blob) => download(`${name}.png`, "image/png", blob));
    });
    tools.hidden = false;
  }
}
