"use strict";
// The numbers of a ladder of budgets under any assumptions: lm/scaling and lm/evaluate/deployment.py in JavaScript.
// Names follow those modules, which explain the methods. tests/browser/test_ladder.py holds both equal to 1e-9.

const ladder = (() => {
  const sum = (values) => values.reduce((total, value) => total + value, 0);
  const mean = (values) => sum(values) / values.length;
  const dot = (a, b) => a.reduce((total, value, i) => total + value * b[i], 0);
  const last = (values) => values[values.length - 1];
  const linspace = (low, high, n) => Array.from({ length: n }, (_, i) => i === n - 1 ? high : low + i * (high - low) / (n - 1));
  const geomspace = (low, high, n) => linspace(Math.log10(low), Math.log10(high), n).map((x, i) => i === 0 ? low : i === n - 1 ? high : 10 ** x);
  const variance = (values) => { const center = mean(values); return sum(values.map((v) => (v - center) ** 2)) / (values.length - 1); };
  const percent = (a, b) => 100 * (a / b - 1);

  const { g } = numbers;

  // Averages over sources.

  function sourceShares({ sources, bytes }, average, fixed) {
    const set = (name) => Object.hasOwn(fixed, name);
    const base = bytes.map((size) => average === "micro" ? size : Number(size > 0));
    const total = sum(base.filter((_, i) => !set(sources[i])));
    const left = 1 - sum(Object.values(fixed));
    const wrong = Object.keys(fixed).some((name) => !sources.includes(name)) || Math.min(left, ...Object.values(fixed)) < -1e-9;
    if (wrong || !Number.isFinite(left) || total === 0 && Math.abs(left) > 1e-9) throw new RangeError("the shares of the sources must be at least 0 and sum to 1");
    return sources.map((name, i) => set(name) ? fixed[name] : Math.max(left, 0) * base[i] / (total || 1));
  }

  /** Factors of the sums over each source that turn a ratio of sums into a weighted average. */
  function scales({ bytes }, shares) {
    const total = sum(bytes);
    return bytes.map((size, i) => size > 0 ? shares[i] * total / size : 0);
  }

  const averageOf = (sums, { bytes }, scale) => dot(sums, scale) / dot(bytes, scale);

  /** Bits per byte by seed and rung. */
  const points = (arm, data, scale) => arm.nats.map((seed) => seed.map((sums) => averageOf(sums, data, scale) / Math.LN2));
  const overSeeds = (rows) => rows[0].map((_, i) => mean(rows.map((row) => row[i])));

  // Curves.

  /** Least squares of relative residuals in floor and level for one exponent; Huber's without weights. */
  function lines(x, p, exponent, constants, weights, given) {
    const { huber } = constants, n = x.length;
    let used = weights ?? new Array(n).fill(1);
    for (let round = 1; ; round++) {
      let aa = 0, ab = 0, bb = 0, a = 0, b = 0;
      for (let i = 0; i < n; i++) {
        const one = 1 / p[i], falling = Math.exp(-exponent * x[i]) * one, w = used[i];
        aa += w * one * one; ab += w * one * falling; bb += w * falling * falling; a += w * one; b += w * falling;
      }
      let floor = given;
      if (given === undefined) {
        floor = Math.max((a * bb - b * ab) / Math.max(aa * bb - ab * ab, 1e-300), 0);
        if (b < ab * floor) floor = a / aa;
      }
      const level = Math.max((b - ab * floor) / bb, 0);
      let loss = 0, robust = 0, change = 0;
      const next = new Array(n);
      for (let i = 0; i < n; i++) {
        const size = Math.abs((floor + level * Math.exp(-exponent * x[i])) / p[i] - 1);
        loss += used[i] * size * size;
        robust += size <= huber ? size * size : huber * (2 * size - huber);
        next[i] = Math.min(1, huber / Math.max(size, 1e-300));
        change = Math.max(change, Math.abs(next[i] - used[i]));
      }
      if (weights) return { floor, level, exponent, loss };
      used = next;
      if (change < 1e-9 || round === 20) return { floor, level, exponent, loss: robust };
    }
  }

  /** The best exponent on a grid, then on finer grids around it. */
  function fit(x, p, constants, weights, floor) {
    let [low, high] = constants.exponents.map(Math.log), best;
    for (let round = 0, n = 41; round < 10; round++, n = 11) {
      const grid = linspace(low, high, n);
      const found = grid.map((value) => lines(x, p, Math.exp(value), constants, weights, floor));
      let i = 0;
      for (let j = 1; j < n; j++) if (found[j].loss < found[i].loss) i = j;
      best = found[i];
      [low, high] = [grid[Math.max(i - 1, 0)], grid[Math.min(i + 1, n - 1)]];
    }
    return best;
  }

  const residuals = (x, p, [floor, level, exponent]) => p.map((point, i) => (floor + level * Math.exp(-exponent * x[i])) / point - 1);
  const cross = (a, b) => [a[1] * b[2] - a[2] * b[1], a[2] * b[0] - a[0] * b[2], a[0] * b[1] - a[1] * b[0]];

  /** Newton's method from a fit to full precision. */
  function polished(x, p, { floor, level, exponent }, { huber, exponents }) {
    const loss = (theta) => sum(residuals(x, p, theta).map(Math.abs).map((size) => size <= huber ? size * size : huber * (2 * size - huber)));
    const start = [floor, level, exponent];
    let theta = start;
    for (let round = 0; round < 20; round++) {
      const h = [[0, 0, 0], [0, 0, 0], [0, 0, 0]], gradient = [0, 0, 0];
      residuals(x, p, theta).forEach((residual, i) => {
        const bounded = Math.min(Math.max(residual, -huber), huber), falling = Math.exp(-theta[2] * x[i]) / p[i];
        const column = [1 / p[i], falling, -theta[1] * x[i] * falling];
        for (let j = 0; j < 3; j++) {
          gradient[j] += column[j] * bounded;
          if (Math.abs(residual) <= huber) for (let k = 0; k < 3; k++) h[j][k] += column[j] * column[k];
        }
        h[1][2] -= bounded * x[i] * falling;
        h[2][1] -= bounded * x[i] * falling;
        h[2][2] += theta[1] * bounded * x[i] * x[i] * falling;
      });
      const [a, b, c] = h, determinant = dot(a, cross(b, c)); // symmetric: rows are columns
      const step = [dot(gradient, cross(b, c)), dot(a, cross(gradient, c)), dot(a, cross(b, gradient))];
      theta = theta.map((value, j) => value - step[j] / determinant);
    }
    const inside = theta[0] > 0 && theta[1] > 0 && exponents[0] < theta[2] && theta[2] < exponents[1];
    return inside && loss(theta) <= loss(start) * (1 + 1e-9) ? theta : start;
  }

  /** The interval around the best value where `excess` is not positive; null if it reaches a bound. */
  function within(excess, best, low, high) {
    if (Math.min(excess(low), excess(high)) <= 0) return null;
    return [low, high].map((outside) => {
      let inside = best;
      for (let round = 0; round < 10; round++) {
        const grid = linspace(inside, outside, 17);
        let first = grid.findIndex((value, i) => i > 0 && excess(value) > 0);
        if (first < 0) first = 1;
        [inside, outside] = [grid[first - 1], grid[first]];
      }
      return inside;
    });
  }

  function fitCurve(name, flops, bySeed, data) {
    const { constants, confidence } = data, nSeeds = bySeed.length, nRungs = flops.length, p = overSeeds(bySeed);
    const curve = (reason, law = null, intervals = [null, null]) => ({
      name, flops, bits_per_byte: p, law, reason, floor_interval: intervals[0], exponent_interval: intervals[1], confidence,
    });
    if (nRungs < constants.fewestRungs) return curve(`it has ${nRungs} budgets, and a law needs ${constants.fewestRungs}`);
    const logFlops = flops.map(Math.log), center = mean(logFlops), x = logFlops.map((value) => value - center);
    const [floor, level, exponent] = polished(x, p, fit(x, p, constants), constants);
    const weights = residuals(x, p, [floor, level, exponent]).map((r) => Math.min(1, constants.huber / Math.max(Math.abs(r), 1e-300)));
    const loss = fit(x, p, constants, weights).loss;
    const logs = bySeed.map((row) => row.map(Math.log)), rungMeans = overSeeds(logs);
    const apart = logs.map((row) => row.map((value, i) => value - rungMeans[i]));
    const scatter = sum(apart.map((row) => { const shift = mean(row); return sum(row.map((value) => (value - shift) ** 2)); }));
    const degrees = nRungs - 3 + (nSeeds - 1) * (nRungs - 1);
    const allowed = loss + Math.max(data.quantiles.fit ** 2 * (nSeeds * loss + scatter) / degrees / nSeeds, 1e-18);
    const intervals = [
      within((value) => fit(x, p, constants, weights, value).loss - allowed, floor, 0, Math.min(...p)),
      within((value) => lines(x, p, value, constants, weights).loss - allowed, exponent, ...constants.exponents),
    ];
    if (intervals.includes(null)) return curve("its points do not identify the floor and the exponent");
    return curve("", { floor, coefficient: level * Math.exp(exponent * center), exponent }, intervals);
  }

  const atLaw = ({ floor, coefficient, exponent }, flops) => floor + coefficient * flops ** -exponent;

  /** Linear in both logarithms; outside, the value at the end. */
  function interpolate(flops, values, at) {
    const x = Math.log(at), n = flops.length;
    if (x <= Math.log(flops[0])) return values[0];
    if (x >= Math.log(flops[n - 1])) return values[n - 1];
    let i = 0;
    while (x >= Math.log(flops[i + 1])) i++;
    const [left, right] = [Math.log(flops[i]), Math.log(flops[i + 1])], [a, b] = [Math.log(values[i]), Math.log(values[i + 1])];
    return Math.exp(a + (b - a) / (right - left) * (x - left));
  }

  const valueAt = (curve, flops, law) => law ? atLaw(curve.law, flops) : interpolate(curve.flops, curve.bits_per_byte, flops);

  /** The value of a curve and whether it is extrapolated, or the reason why there is none. */
  function read(curve, flops, { farthest }) {
    const low = curve.flops[0], high = last(curve.flops);
    const extrapolated = !(low * (1 - 1e-9) <= flops && flops <= high * (1 + 1e-9));
    if (extrapolated) {
      const outside = `${g(flops)} FLOPs is outside the measured ${g(low)} to ${g(high)} of ${curve.name}`;
      if (!curve.law) return { reason: `${outside}, and its curve only interpolates: ${curve.reason}` };
      if (!(low / farthest <= flops && flops <= high * farthest)) return { reason: `${outside} by more than a factor of ${farthest}; train a rung closer to it` };
    }
    return { bits_per_byte: valueAt(curve, flops, curve.law), extrapolated, reason: "" };
  }

  // Cost of serving.

  function weightsOf(d, experts, { mlpMatrices }) {
    const attention = 2 * d.hidden_size * d.head_dim * (d.n_heads + d.n_kv_heads);
    return d.n_layers * (attention + d.hidden_size * d.n_experts + experts * mlpMatrices[d.mlp] * d.hidden_size * d.mlp_size);
  }

  function servingCost(d, vocabSize, tokensPerByte, constants) {
    const tokens = d.context_bytes * tokensPerByte, window = d.window_bytes * tokensPerByte, near = Math.min(tokens, window);
    const whole = d.n_layers - d.window_layers;
    const positions = whole * tokens + d.window_layers * near;
    const pairs = whole * tokens * (tokens + 1) / 2 + d.window_layers * (near * (near + 1) / 2 + (tokens - near) * window);
    const head = d.hidden_size * vocabSize, active = weightsOf(d, d.shared_experts + d.active_experts, constants);
    const perPair = 4 * d.n_heads * d.head_dim, perPosition = 2 * d.n_kv_heads * d.head_dim * constants.numberBytes[d.kv_format];
    const cache = positions * perPosition / d.context_bytes;
    const phase = (flops, textBytes, batchTokens, kv) => {
      const distinct = d.n_experts ? d.n_experts * (1 - (1 - d.active_experts / d.n_experts) ** batchTokens) : 0;
      const used = weightsOf(d, d.shared_experts + distinct, constants) + head;
      const traffic = used * constants.numberBytes[d.weight_format] / (d.batch * textBytes);
      const compute = flops / textBytes / d.device_flops, memory = (traffic + kv) / d.device_bandwidth;
      return {
        flops_per_byte: flops / textBytes, head_share: 2 * head / flops, weight_bytes_per_byte: traffic, kv_bytes_per_byte: kv,
        seconds_per_byte: Math.max(compute, memory), limited_by: compute >= memory ? "compute" : "memory",
      };
    };
    return {
      context_tokens: tokens, tokens_per_byte: tokensPerByte,
      weights_total: weightsOf(d, d.shared_experts + d.n_experts, constants) + head, weights_active: active + head, cache_bytes_per_byte: cache,
      prefill: phase(2 * active * tokens + 2 * head + perPair * pairs, d.context_bytes, d.batch * tokens, 2 * cache),
      decode: phase(2 * (active + head) + perPair * positions, 1 / tokensPerByte, d.batch, positions * perPosition * tokensPerByte),
    };
  }

  const relativeCost = (cost, reference) => ({
    prefill: cost.prefill.flops_per_byte / reference.prefill.flops_per_byte,
    decode: cost.decode.flops_per_byte / reference.decode.flops_per_byte,
    prefill_seconds: cost.prefill.seconds_per_byte / reference.prefill.seconds_per_byte,
    decode_seconds: cost.decode.seconds_per_byte / reference.decode.seconds_per_byte,
  });

  // Loss and cost together.

  function equivalent(curve, referenceFlops, rho, relative, constants) {
    const factor = 1 + rho * (1 - relative), flops = referenceFlops * factor;
    const found = { reference_flops: referenceFlops, flops: null, bits_per_byte: null, extrapolated: false, reason: "" };
    if (factor <= 0) {
      const reason = `${curve.name} costs ${relative.toFixed(2)} times as much to serve as the reference: at rho=${g(rho, 6)} that is more than training costs, and cannot be matched`;
      return { ...found, reason };
    }
    return { ...found, flops, ...read(curve, flops, constants) };
  }

  /** Difference of two curves that are read at two budgets, in percent, with its interval where it is known. */
  function equivalentGap(reference, arm, found, sampled, quantiles) {
    const none = (reason) => ({ percent: null, interval: null, reason });
    if (found.bits_per_byte === null) return none(found.reason);
    const law = Boolean(reference.curve.law && arm.curve.law);
    if (found.extrapolated && !law) return none(`the curve of ${reference.curve.name} only interpolates: ${reference.curve.reason}`);
    const value = percent(valueAt(arm.curve, found.flops, law), valueAt(reference.curve, found.reference_flops, law));
    const half = sampled ? halfWidth(reference, arm, found, law, quantiles) : null;
    return { percent: value, interval: half === null ? null : [value - half, value + half], reason: "" };
  }

  function halfWidth(reference, arm, found, law, quantiles) {
    if (quantiles.units === null || !arm.data.resampled) return null;
    const each = (which, one, flops) => law
      ? one.data.laws[which].map(([floor, coefficient, exponent]) => atLaw({ floor, coefficient, exponent }, flops))
      : (which === "seeds" ? one.bySeed : one.data.resampled).map((row) => interpolate(one.curve.flops, row, flops));
    const gaps = (which) => {
      const base = each(which, reference, found.reference_flops);
      return each(which, arm, found.flops).map((value, i) => percent(value, base[i]));
    };
    let total = quantiles.units ** 2 * variance(gaps("resampled"));
    if (quantiles.seeds !== null) total += quantiles.seeds ** 2 * variance(gaps("seeds")) / arm.bySeed.length;
    if (law && arm.data.scatter) {
      const [a, b] = [atLaw(arm.curve.law, found.flops), atLaw(reference.curve.law, found.reference_flops)];
      const relative = scatterAt(arm, found.flops) / a ** 2 + scatterAt(reference, found.reference_flops) / b ** 2;
      total += quantiles.scatter ** 2 * (100 * a / b) ** 2 * relative;
    }
    return Math.sqrt(total);
  }

  /** Variance of a law's reading from the scatter of the points of one run about it. */
  function scatterAt({ curve: { law }, data: { scatter } }, flops) {
    const falling = flops ** -law.exponent, derivatives = [1, falling, -law.coefficient * falling * Math.log(flops)], gradient = [];
    for (let i = 0; i < 3; i++) {
      let value = derivatives[i] / scatter.scales[i];
      for (let j = 0; j < i; j++) value -= scatter.triangle[j][i] * gradient[j];
      gradient.push(value / scatter.triangle[i][i]);
    }
    return scatter.variance * dot(gradient, gradient);
  }

  function ranking(equivalents) {
    const names = Object.keys(equivalents), unmatched = names.filter((name) => last(equivalents[name]).flops === null);
    const rows = names.filter((name) => !unmatched.includes(name));
    for (let i = Math.min(...rows.map((name) => equivalents[name].length)) - 1; i >= 0; i--) {
      if (rows.some((name) => equivalents[name][i].bits_per_byte === null)) continue;
      return {
        reference_flops: equivalents[rows[0]][i].reference_flops,
        names: rows.toSorted((a, b) => equivalents[a][i].bits_per_byte - equivalents[b][i].bits_per_byte),
        extrapolated: rows.filter((name) => equivalents[name][i].extrapolated), unmatched,
      };
    }
    return { reference_flops: null, names: [], extrapolated: [], unmatched };
  }

  function frontier(arms, loss, cost) {
    const found = [];
    for (const i of arms.map((_, i) => i).sort((i, j) => cost[i] - cost[j] || loss[i] - loss[j])) {
      if (!found.length || loss[i] < loss[last(found)]) found.push(i);
    }
    return found.map((i) => arms[i].name);
  }

  /** Reason why no tokenizer may be called better; empty if one may. */
  function reasonWithheld(data, scale, nSeeds) {
    const { fewestSeeds, fewestEffective } = data.constants, fewest = fewestEffective[data.cluster];
    const effective = dot(data.bytes, scale) ** 2 / sum(data.squares.map((value, i) => value * scale[i] ** 2));
    if (effective < fewest - 1e-6) return [effective, `${effective.toFixed(1)} effective ${data.cluster}s, at least ${fewest} are required`];
    if (nSeeds < fewestSeeds) return [effective, `${nSeeds} seed${nSeeds === 1 ? "" : "s"}, at least ${fewestSeeds} are required`];
    return [effective, ""];
  }

  function worth(withheld, equivalents, gaps) {
    if (last(equivalents).flops === null) return { answer: "no", rung: null, reason: last(equivalents).reason };
    const rung = gaps.findLastIndex((gap) => gap.percent !== null);
    if (rung < 0) return { answer: "unknown", rung: null, reason: last(gaps).reason };
    if (withheld) return { answer: "withheld", rung, reason: withheld };
    const { interval } = gaps[rung];
    if (!interval) return { answer: "unknown", rung, reason: "no interval can be computed" };
    return { answer: interval[1] < 0 ? "yes" : interval[0] > 0 ? "no" : "undecided", rung, reason: "" };
  }

  function crossings({ flops, values }) {
    const found = [], nonzero = values.map((_, i) => i).filter((i) => values[i] !== 0);
    for (let k = 1; k < nonzero.length; k++) {
      const [i, j] = [nonzero[k - 1], nonzero[k]], [one, two] = [values[i], values[j]];
      if (one * two > 0) continue;
      const share = one / (one - two);
      found.push({ flops: Math.exp((1 - share) * Math.log(flops[i]) + share * Math.log(flops[j])), low: null, high: null });
    }
    return found;
  }

  function slope(values, flops) {
    const x = flops.map(Math.log), center = mean(x), centered = x.map((value) => value - center);
    return dot(values, centered) / dot(centered, centered);
  }

  const PHASES = ["prefill", "decode"];

  /** What the deployment does not change: averages and curves. */
  function prepare(data, average, fixed) {
    const shares = sourceShares(data, average, fixed), scale = scales(data, shares);
    const read = data.arms.map((arm) => {
      const bySeed = points(arm, data, scale);
      return { data: arm, bySeed, curve: fitCurve(arm.name, arm.flops, bySeed, data) };
    });
    return { shares, scale, read };
  }

  function bandOf(low, high, value, n, method) {
    const flops = geomspace(low, high, n);
    return { flops, values: flops.map(value), intervals: null, method };
  }

  /**
   * The result of `reprice`. Intervals are those of `stored`, the result for the stored measurements, and null under other
   * shares of the sources; those of equivalent gaps are computed.
   */
  function compute(data, stored, { average, shares: fixed, deployment }, prepared = prepare(data, average, fixed)) {
    const { constants, quantiles } = data, { shares, scale, read } = prepared, n = constants.grid;
    const same = data.sources.every((name, i) => Math.abs(shares[i] - stored.shares[name]) < 1e-12);
    const [reference] = read;
    const tokensPerByte = data.arms.map((arm) => averageOf(arm.tokens, data, scale));
    const costs = data.arms.map((arm, i) => servingCost(deployment, arm.vocab_size, tokensPerByte[i], constants));
    const relative = costs.map((cost) => relativeCost(cost, costs[0]));
    const over = ["micro", "macro"].map((name) => [name, scales(data, sourceShares(data, name, {}))]);
    const arms = read.map(({ data: arm, curve }, i) => {
      const [low, high] = [curve.flops[0], last(curve.flops)], method = curve.law ? "law" : "interpolation";
      const at = (flops) => valueAt(curve, flops, curve.law), before = stored.arms[i].bands;
      const bands = {
        measured: { ...bandOf(low, high, at, n, method), intervals: same ? before.measured.intervals : null },
        extrapolated: curve.law ? { ...bandOf(high, constants.farthest * high, at, n, method), intervals: same ? before.extrapolated.intervals : null } : null,
      };
      const equivalents = PHASES.map((phase) => [phase, reference.curve.flops.map((flops) => equivalent(curve, flops, deployment.rho, relative[i][phase], constants))]);
      return {
        name: arm.name, tokens_per_byte: tokensPerByte[i], curve, bands, cost: costs[i], relative_cost: relative[i],
        bits_per_byte: Object.fromEntries(over.map(([name, scale]) => [name, overSeeds(points(arm, data, scale))])),
        equivalent: Object.fromEntries(equivalents),
      };
    });
    const [effective, withheld] = reasonWithheld(data, scale, reference.bySeed.length);
    const gaps = read.slice(1).map((arm, i) => {
      const { flops } = reference.curve, before = stored.gaps[i], law = Boolean(reference.curve.law && arm.curve.law);
      const values = arm.curve.bits_per_byte.map((value, k) => percent(value, reference.curve.bits_per_byte[k]));
      const low = Math.max(flops[0], arm.curve.flops[0]), high = Math.min(last(flops), last(arm.curve.flops));
      const at = (flops) => percent(valueAt(arm.curve, flops, law), valueAt(reference.curve, flops, law));
      const band = flops.length > 1 ? bandOf(low, high, at, n, law ? "law" : "interpolation") : null;
      const known = same && before.band ? before : null;
      const equivalents = PHASES.map((phase) => [phase, arms[i + 1].equivalent[phase].map((found) => equivalentGap(reference, arm, found, same, quantiles))]);
      return {
        arm: arm.data.name, reference: reference.data.name, flops, percent: values,
        intervals: same ? before.intervals : null, signs: same ? before.signs : flops.map(() => 0),
        decisions: flops.map((_, k) => withheld ? "withheld" : same ? before.decisions[k] : "unknown"),
        level: before.level, effective_units: effective, withheld,
        trend: flops.length > 1 ? { slope: slope(values, flops), interval: known ? known.trend.interval : null } : null,
        band: band && { ...band, intervals: known ? known.band.intervals : null },
        crossings: band ? crossings(band).map((each, k) => known ? { ...each, low: known.crossings[k].low, high: known.crossings[k].high } : each) : [],
        equivalent: Object.fromEntries(equivalents),
        worth: Object.fromEntries(equivalents.map(([phase, rows]) => [phase, worth(withheld, arms[i + 1].equivalent[phase], rows)])),
      };
    });
    const loss = read.map(({ curve }) => last(curve.bits_per_byte));
    const byPhase = (make) => Object.fromEntries(PHASES.map((phase) => [phase, make(phase)]));
    const none = gaps.find((gap) => gap.withheld)?.withheld ?? null;
    return {
      reference: reference.data.name, deployment, average, confidence: data.confidence, same, arms, gaps,
      shares: Object.fromEntries(data.sources.map((name, i) => [name, shares[i]])),
      ranking: {
        bits_per_byte: arms.map((_, i) => i).sort((i, j) => loss[i] - loss[j]).map((i) => arms[i].name),
        ...byPhase((phase) => ranking(Object.fromEntries(arms.map((arm) => [arm.name, arm.equivalent[phase]])))),
        withheld: none,
      },
      frontier: { ...byPhase((phase) => frontier(arms, loss, costs.map((cost) => cost[phase].flops_per_byte))), withheld: none },
    };
  }

  return { compute, prepare, g };
})();
