"use strict";
// The page of a ladder: reads the controls, computes with `ladder.compute`, and shows the result.

(() => {
  const { found: stored, data, presets, answers } = JSON.parse(byId("about").textContent);
  const FREE = ["rho", "context_bytes", "batch"]; // of the deployment: controls of their own
  const shapeOf = (deployment) => JSON.stringify(Object.entries(deployment).filter(([key]) => !FREE.includes(key)).sort());
  const own = stored.deployment, named = Object.keys(presets).find((name) => shapeOf(presets[name]) === shapeOf(own));
  const models = named ? presets : { "this run's own": own, ...presets };
  const reference = stored.reference;

  let assumptions, prepared = null;
  function reset() {
    prepared = null;
    assumptions = { average: data.average, shares: { ...data.fixed }, deployment: { ...own }, preset: named ?? "this run's own", phase: "decode" };
  }

  // Texts.

  const { g, si, fixed, percent, flopsText } = numbers;
  const signed = (value) => numbers.signed(value, 1);
  const change = (value) => `${signed(value)}\u00a0%`;
  const ends = (interval) => interval ? `${signed(interval[0])} to ${signed(interval[1])}\u00a0%` : "";
  const last = (values) => values[values.length - 1];
  const listed = (names) => names.length < 2 ? names.join("") : `${names.slice(0, -1).join(", ")} and ${last(names)}`;
  const some = (names) => names.length > 3 ? `${names.length} tokenizers` : listed(names);
  const are = (names) => names.length > 1 ? "are" : "is";

  function headline({ gaps }) {
    const by = (answer) => gaps.filter((gap) => gap.worth[assumptions.phase].answer === answer);
    const names = (answer) => by(answer).map((gap) => gap.arm);
    if (!gaps.length) return "One tokenizer: nothing to compare it with";
    const withheld = by("withheld");
    if (withheld.length === gaps.length) return `No verdict yet: ${withheld[0].withheld}`;
    const [yes, no, undecided] = ["yes", "no", "undecided"].map(names);
    const parts = [];
    if (yes.length) {
      const saved = by("yes").map((gap) => -gap.equivalent[assumptions.phase][gap.worth[assumptions.phase].rung].percent);
      parts.push(`${some(yes)} ${are(yes)} worth it: ${yes.length > 1 ? "up to " : ""}${fixed(Math.max(...saved), 1)}\u00a0% fewer bits per byte than ${reference} at the same total cost`);
    }
    if (no.length) parts.push(`${some(no)} ${are(no)} not worth it${yes.length || gaps.length > no.length ? "" : ` instead of ${reference}`}`);
    if (undecided.length) parts.push(`${parts.length ? "" : "Undecided whether "}${some(undecided)} ${are(undecided)} ${parts.length ? "undecided" : "worth it"}`);
    const rest = [...names("withheld"), ...names("unknown")];
    if (rest.length) parts.push(parts.length ? `no verdict about ${some(rest)}` : `No verdict for these assumptions about ${some(rest)}`);
    return parts.join("; ");
  }

  /** The command that computes the same in a terminal. */
  function command() {
    const { deployment, preset, shares, average } = assumptions, name = preset in presets ? preset : "dense-8b";
    const settings = [`deployment=${name}`];
    for (const [key, value] of Object.entries(deployment)) if (value !== presets[name][key]) settings.push(`deployment.${key}=${value}`);
    if (average !== "micro") settings.push(`average=${average}`);
    for (const [source, share] of Object.entries(shares)) settings.push(`shares.${source}=${share}`);
    const quoted = (word) => /^[\w@%+=:,./-]+$/.test(word) ? word : `'${word.replaceAll("'", "'\"'\"'")}'`;
    return ["python -m experiments.reprice", stored.run, ...settings].map((word, i) => i ? quoted(word) : word).join(" ");
  }

  // Tables.

  const cell = (value, note, kind) => {
    const inner = element("div", {}, value, ...note ? [element("small", {}, note)] : []);
    return element("td", { class: kind || undefined }, ...value ? [inner] : []);
  };
  const nameCell = (i) => {
    const arm = element("span", { class: "arm" }, element("span", { class: `dot k${i % 8}` }), data.arms[i].name);
    return element("td", { class: "name" }, arm);
  };
  const table = (id, columns, rows) => byId(id).replaceChildren(
    element("thead", {}, element("tr", {}, ...columns.map((column) => element("th", {}, column)))),
    element("tbody", {}, ...rows.map((cells) => element("tr", {}, ...cells))),
  );
  const plain = (texts) => texts.map((text) => element("td", {}, text));
  const bold = (text) => element("b", {}, text);

  const lifetime = (rho) => rho === 0 ? "Serving it costs nothing (ρ = 0)."
    : `Over its life, serving it takes ${rho === 1 ? "as much" : `${g(rho)} times as much`} compute as training it (ρ = ${g(rho)}).`;

  function showWorth(found) {
    const { phase } = assumptions, rho = assumptions.deployment.rho;
    const columns = ["tokenizer", "Is it worth it?", "bits per byte, equal training", "FLOPs to read a byte", "FLOPs to generate a byte", `bits per byte, equal total cost (ρ = ${g(rho)})`];
    const verbs = { better: "better", worse: "worse", undecided: "undecided", withheld: "no verdict", unknown: "" };
    const rows = found.arms.map((arm, i) => {
      if (i === 0) {
        return [nameCell(0), cell("reference", "", "answer"), cell(fixed(last(arm.curve.bits_per_byte), 4)),
          cell(si(arm.cost.prefill.flops_per_byte)), cell(si(arm.cost.decode.flops_per_byte)), cell("")];
      }
      const gap = found.gaps[i - 1], { answer, rung, reason } = gap.worth[phase], equal = rung === null ? null : gap.equivalent[phase][rung];
      const short = answer === "no" && reason ? "its serving cost cannot be matched at this ρ" : !found.same && equal && answer === "unknown" ? "no interval for these weights" : reason;
      const interval = gap.intervals && last(gap.intervals), decision = verbs[last(gap.decisions)];
      const cost = (which) => { const more = 100 * (arm.relative_cost[which] - 1); return [bold(change(more)), signed(more) === "0.0" ? "the same" : more < 0 ? "cheaper" : "more expensive"]; };
      const notes = equal ? [ends(equal.interval), arm.equivalent[phase][rung].extrapolated && "extrapolated", rung < gap.flops.length - 1 && `at ${flopsText(gap.flops[rung])} FLOPs`] : [];
      return [
        nameCell(i),
        cell(element("span", { class: `chip ${answer}` }, answers[answer].replace(/^./, (c) => c.toUpperCase())), short, "answer"),
        cell(bold(change(last(gap.percent))), [ends(interval), decision].filter(Boolean).join(", ")),
        cell(...cost("prefill")), cell(...cost("decode")),
        cell(equal ? bold(change(equal.percent)) : "–", notes.filter(Boolean).join(", ")),
      ];
    });
    table("worth", columns, rows);
    const answered = new Set(found.gaps.map((gap) => gap.worth[phase].answer));
    byId("verdict").classList.toggle("better", answered.has("yes"));
    write("headline", headline(found));
    const [first, final] = [found.arms[0].curve.flops[0], last(found.arms[0].curve.flops)];
    const seeds = data.arms[0].n_seeds, context = si(assumptions.deployment.context_bytes).replace(/[kMG]?$/, " $&");
    write("conditions", `For a ${assumptions.preset} model that ${phase === "decode" ? "generates" : "reads"} text in a context of ${context}B. ${lifetime(rho)} `
      + `Measured from ${flopsText(first)} to ${flopsText(final)} training FLOPs, ${seeds} seed${seeds > 1 ? "s" : ""} each. Below 0 is better, or cheaper, than ${reference}.`);
  }

  /** Shows a finding as a heading below its topic; the topic alone if there is none. */
  function finding(id, text) {
    const place = byId(id);
    place.replaceChildren(...text ? [element("small", {}, place.dataset.topic), harmless(text)] : [place.dataset.topic]);
  }

  /** Heading of losses: what the comparisons at the largest budget decide. */
  function lossFinding({ gaps, arms, same }) {
    if (!gaps.length || !same) return "";
    if (gaps.every((gap) => last(gap.decisions) === "withheld")) return `No verdict about the tokenizers: ${gaps[0].withheld}`;
    const named = (decision) => gaps.filter((gap) => last(gap.decisions) === decision).map((gap) => gap.arm);
    const [better, worse] = [named("better"), named("worse")], rest = gaps.length - better.length - worse.length;
    const needs = (names) => `${some(names)} ${names.length > 1 ? "need" : "needs"}`;
    const parts = [better.length && `${needs(better)} fewer bits per byte than ${reference}`, worse.length && `${needs(worse)} more bits per byte than ${reference}`];
    parts.push(rest && (rest < gaps.length ? `${rest} ${are(Array(rest))} undecided` : `No tokenizer is shown to need fewer or more bits per byte than ${reference}`));
    return `${parts.filter(Boolean).join("; ")}, at ${flopsText(last(arms[0].curve.flops))} training FLOPs`;
  }

  /** Heading of the deployment: the cost of serving, which is computed, not estimated. */
  function costFinding({ arms }) {
    const { phase } = assumptions, verb = phase === "decode" ? "generate" : "read";
    const least = arms.reduce((a, b) => b.relative_cost[phase] < a.relative_cost[phase] ? b : a), saved = 100 * (1 - least.relative_cost[phase]);
    if (arms.length < 2) return "";
    return saved < 0.05 ? `No tokenizer needs fewer FLOPs to ${verb} a byte than ${reference}` : `${least.name} needs ${fixed(saved, 1)}\u00a0% fewer FLOPs than ${reference} to ${verb} a byte`;
  }

  function showLoss(found) {
    finding("loss-finding", lossFinding(found));
    const several = data.sources.length > 1, columns = ["training FLOPs", ...found.arms[0].curve.flops.map(flopsText)];
    if (several) columns.push("largest budget, micro", "largest budget, macro");
    table("loss", columns, found.arms.map((arm, i) => {
      const values = [...arm.curve.bits_per_byte, ...(several ? [last(arm.bits_per_byte.micro), last(arm.bits_per_byte.macro)] : [])];
      return [nameCell(i), ...plain(values.map((value) => fixed(value, 4)))];
    }));
    const shares = Object.entries(found.shares).sort((a, b) => b[1] - a[1]), shown = shares.slice(0, 8);
    const rest = shares.length > shown.length ? `, and ${shares.length - shown.length} more` : "";
    write("averaging", several ? `Weights of the sources: ${shown.map(([name, share]) => `${name} ${percent(share)}`).join(", ")}${rest}. The micro average weighs sources by their bytes, the macro average equally.` : "");
  }

  function showCost(found) {
    finding("cost-finding", costFinding(found));
    const { phase, deployment: d } = assumptions;
    const columns = ["", "tokens per byte", "tokens in context", "reading: FLOPs per byte", "generating: FLOPs per byte", "head's share", "KV cache: bytes per byte", `${phase === "decode" ? "generating" : "reading"}: µs per byte`, "equivalent bits per byte"];
    table("cost", columns, found.arms.map((arm, i) => {
      const at = arm.cost[phase], read = arm.equivalent[phase], equal = read.findLast((each) => each.bits_per_byte !== null);
      const note = last(read).flops === null ? "cannot be matched" : !equal ? "outside the measured budgets"
        : [equal.extrapolated && "extrapolated", equal !== last(read) && `at ${flopsText(equal.reference_flops)} FLOPs`].filter(Boolean).join(", ");
      const value = equal ? fixed(equal.bits_per_byte, 4) : "–";
      return [
        nameCell(i), ...plain([fixed(arm.tokens_per_byte, 4), si(arm.cost.context_tokens), si(arm.cost.prefill.flops_per_byte), si(arm.cost.decode.flops_per_byte),
          percent(at.head_share), si(arm.cost.cache_bytes_per_byte)]),
        cell(g(1e6 * at.seconds_per_byte), `limited by ${at.limited_by}`), cell(value, note),
      ];
    }));
    const experts = d.n_experts ? `, ${d.active_experts + d.shared_experts} of ${d.n_experts + d.shared_experts} experts` : "";
    write("shape", `A model of ${d.n_layers} layers of width ${d.hidden_size}, ${d.n_kv_heads} key-value heads${experts}, at a context of ${si(d.context_bytes)}B, ${d.batch} sequences at a time. `
      + `Seconds are a lower bound for a device of ${si(d.device_flops)}FLOP/s and ${si(d.device_bandwidth)}B/s.`);
    const order = found.ranking[phase], items = [`By bits per byte at equal training FLOPs: ${found.ranking.bits_per_byte.join(", ")}.`];
    items.push(order.names.length
      ? `By equivalent bits per byte, at ${flopsText(order.reference_flops)} FLOPs of ${reference}: ${order.names.map((name) => order.extrapolated.includes(name) ? `${name} (extrapolated)` : name).join(", ")}.`
      : "By equivalent bits per byte: at no budget can all tokenizers be read.");
    if (order.unmatched.length) items.push(`Cannot be matched: ${listed(order.unmatched)}.`);
    items.push(`On the frontier of bits per byte and cost of ${phase === "decode" ? "generating" : "reading"}, cheapest first: ${found.frontier[phase].join(", ")}.`);
    byId("ranking").replaceChildren(...items.map((text) => element("li", {}, text)));
    byId("unnamed").hidden = !found.ranking.withheld;
    write("unnamed", `This order names no better tokenizer: ${found.ranking.withheld}.`);
  }

  // Charts.

  const bandRows = (tokenizer, band, extrapolated) => !band ? [] : band.flops.map((flops, i) => ({
    tokenizer, extrapolated, flops, value: band.values[i], low: band.intervals?.[i][0] ?? null, high: band.intervals?.[i][1] ?? null,
  }));

  /** Rows to draw intervals from: where there is none, one without width, because Vega warns about empty data. */
  const drawn = (rows, value) => rows.map((row) => row.low === null ? { ...row, low: row[value], high: row[value] } : row);

  function showCharts(found) {
    const { phase } = assumptions;
    const rows = found.arms.map((arm, i) => {
      const gap = found.gaps[i - 1], interval = gap?.intervals && last(gap.intervals);
      return { tokenizer: arm.name, cost: arm.relative_cost[phase], change: gap ? last(gap.percent) : 0, low: interval?.[0] ?? null, high: interval?.[1] ?? null };
    });
    const line = found.frontier[phase].map((name, order) => ({ ...rows.find((row) => row.tokenizer === name), order }));
    updateChart("frontier", { rows, line, bars: drawn(rows, "change") });
    const curves = found.arms.flatMap(({ name, bands }) => [...bandRows(name, bands.measured, false), ...bandRows(name, bands.extrapolated, true)]);
    updateChart("curves", {
      rows: curves, bands: drawn(curves, "value"),
      points: found.arms.flatMap(({ name, curve }) => curve.flops.map((flops, i) => ({ tokenizer: name, flops, value: curve.bits_per_byte[i] }))),
    });
    const gaps = found.gaps.flatMap((gap) => bandRows(gap.arm, gap.band, false));
    if (byId("chart-gaps")) updateChart("gaps", { rows: gaps, bands: drawn(gaps, "value") });
    const withheld = found.frontier.withheld ? ` It names no better tokenizer: ${found.frontier.withheld}.` : "";
    write("frontier-caption", `Against ${reference}, at ${flopsText(last(found.arms[0].curve.flops))} training FLOPs; FLOPs to ${phase === "decode" ? "generate" : "read"} a byte. `
      + `The line connects tokenizers that no other beats in both.${found.same ? " Bars are intervals." : ""}${withheld}`);
  }

  // Controls.

  const fields = Object.fromEntries(["preset", "phase", "context", "rho", "batch"].map((id) => [id, byId(id)]));
  const sources = byId("sources");
  fields.preset.append(...Object.keys(models).map((name) => element("option", {}, name)));
  fields.rho.max = Math.max(10, own.rho);

  function showControls(found) {
    const { deployment, preset, phase, shares, average } = assumptions;
    fields.preset.value = preset;
    fields.phase.value = phase;
    fields.context.value = Math.log2(deployment.context_bytes);
    fields.rho.value = deployment.rho;
    if (document.activeElement !== fields.batch) fields.batch.value = deployment.batch;
    byId("context-value").textContent = `${si(deployment.context_bytes).replace(/[kMG]?$/, " $&")}B`;
    byId("rho-value").textContent = g(deployment.rho);
    if (!sources) return;
    byId("average").value = average;
    for (const row of sources.children) {
      const { source } = row.dataset, [, value, slider] = row.children;
      row.classList.toggle("fixed", Object.hasOwn(shares, source));
      value.textContent = percent(found.shares[source]);
      if (document.activeElement !== slider) slider.value = found.shares[source];
    }
  }

  /** Fixes the share of a source. One source at least stays free, so that the shares can sum to 1. */
  function weigh(source, value) {
    const shares = { ...assumptions.shares };
    delete shares[source];
    const measured = data.sources.filter((_, i) => data.bytes[i] > 0), others = Object.keys(shares);
    if (others.length === measured.length - 1) delete shares[others[0]];
    const left = 1 - Object.values(shares).reduce((a, b) => a + b, 0);
    shares[source] = Math.min(value, Math.max(0, Number(left.toFixed(12))));
    assumptions.shares = shares;
  }

  if (sources) {
    for (const [i, source] of data.sources.entries()) {
      if (!data.bytes[i]) continue;
      const slider = element("input", { type: "range", min: 0, max: 1, step: 0.01, "aria-label": `weight of ${source}` });
      const row = element("label", {}, element("b", {}, source), element("output", {}), slider);
      row.dataset.source = source;
      slider.addEventListener("input", () => { weigh(source, Number(slider.value)); changed(true); });
      sources.append(row);
    }
    byId("average").addEventListener("input", () => { assumptions.average = byId("average").value; changed(true); });
    byId("free").addEventListener("click", () => { assumptions.shares = {}; changed(true); });
  }
  const set = (values) => { Object.assign(assumptions.deployment, values); changed(); };
  fields.preset.addEventListener("input", () => {
    const kept = Object.fromEntries(FREE.map((key) => [key, assumptions.deployment[key]]));
    assumptions.preset = fields.preset.value;
    set({ ...models[assumptions.preset], ...kept });
  });
  fields.phase.addEventListener("input", () => { assumptions.phase = fields.phase.value; changed(); });
  fields.context.addEventListener("input", () => set({ context_bytes: Math.round(2 ** fields.context.value) }));
  fields.rho.addEventListener("input", () => set({ rho: Number(fields.rho.value) }));
  fields.batch.addEventListener("input", () => { const batch = Math.floor(fields.batch.value); if (batch >= 1) set({ batch }); });
  byId("controls").addEventListener("submit", (event) => event.preventDefault());
  byId("reset").addEventListener("click", () => { reset(); changed(true); });

  function show() {
    prepared ??= ladder.prepare(data, assumptions.average, assumptions.shares);
    const found = ladder.compute(data, stored, assumptions, prepared);
    for (const part of [showWorth, showLoss, showCost, showCharts, showControls]) part(found);
    labelCells();
    for (const place of document.querySelectorAll("code.command")) place.textContent = harmless(command());
    byId("without").hidden = found.same;
    byId("statements").hidden = !found.same;
  }

  let waiting = false;
  function changed(weights = false) {
    if (weights) prepared = null;
    if (waiting) return;
    waiting = true;
    requestAnimationFrame(() => { waiting = false; show(); });
  }

  document.querySelector("#chart-frontier").after(element("figcaption", { id: "frontier-caption" }));
  reset();
  show();
  ladder.about = { data, stored };
})();
