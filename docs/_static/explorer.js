"use strict";
// The bounds of nonvacuous.bounds, in plain JavaScript and not rounded outward: a browser test
// compares them with the library to 1e-9. For a certificate use the library.
const explorer = (() => {
  // Stirling's remainder of ln n!: by the product for small n, by its series beyond.
  function stirling(n) {
    if (n < 16) {
      let logarithm = 0;
      for (let k = 2; k <= n; k++) logarithm += Math.log(k);
      return logarithm - (n + 0.5) * Math.log(n) + n - 0.5 * Math.log(2 * Math.PI);
    }
    const s = 1 / (n * n);
    return (1 / 12 - (1 / 360 - (1 / 1260 - s / 1680) * s) * s) / n;
  }

  // kl(q, p) in nats, by log1p: near q = p nothing cancels.
  function kl(q, p) {
    if (q <= 0) return -Math.log1p(-p);
    if (q >= 1) return -Math.log(p);
    const d = p - q;
    return -q * Math.log1p(d / q) - (1 - q) * Math.log1p(-d / (1 - q));
  }

  // The root of an increasing function between two ends, to the last bit.
  function root(above, low, high) {
    for (let step = 0; step < 200; step++) {
      const middle = (low + high) / 2;
      if (middle <= low || middle >= high) break;
      if (above(middle)) high = middle;
      else low = middle;
    }
    return high;
  }

  function klInverse(q, c) {
    if (q >= 1) return 1;
    if (q <= 0) return -Math.expm1(-c);
    return root((p) => p >= 1 || kl(q, p) > c, q, 1);
  }

  // ln P(Bin(n, p) <= k): the point probability in Loader's form, times a sum of ratios.
  function logTail(k, n, p) {
    if (k === 0) return n * Math.log1p(-p);
    const point =
      0.5 * Math.log(n / (2 * Math.PI * k * (n - k))) +
      stirling(n) - stirling(k) - stirling(n - k) - n * kl(k / n, p);
    let sum = 1, term = 1;
    const odds = (1 - p) / p;
    for (let j = k; j > 0 && term > 1e-18 * sum; j--) {
      term *= (j / (n - j + 1)) * odds;
      sum += term;
    }
    return point + Math.log(sum);
  }

  function holdout({ errors, examples, failure }) {
    if (errors >= examples) return 1;
    if (errors === 0) return -Math.expm1(Math.log(failure) / examples);
    const level = Math.log(failure);
    return root((p) => logTail(errors, examples, p) < level, errors / examples, 1);
  }

  const holdoutLower = ({ errors, examples, failure }) =>
    errors === 0 ? 0 : 1 - holdout({ errors: examples - errors, examples, failure });

  // xi(n) = 1 + sum over j of n (n-1) ... (n-j+1) / n^j (Maurer; Ramanujan's sum).
  function moment(n) {
    const length = Math.min(n, 16 + 9 * Math.floor(Math.sqrt(n)));
    let logarithm = 0, sum = 1;
    for (let j = 0; j < length; j++) {
      logarithm += Math.log1p(-j / n);
      sum += Math.exp(logarithm);
    }
    return sum;
  }
  const remembered = new Map();
  function logMoment(n, exact) {
    if (!exact) return Math.log(2 * Math.sqrt(n));
    if (!remembered.has(n)) remembered.set(n, Math.log(moment(n)));
    return remembered.get(n);
  }

  const clip = (value) => Math.min(1, Math.max(0, value));
  const cost = ({ kl: nats, examples, failure }, exact = false) =>
    (nats + logMoment(examples, exact) - Math.log(failure)) / examples;
  const thiemannAt = (s, t) => clip((s.risk + cost(s) / t) / (1 - t / 2));
  const TRADE_OFFS = Array.from({ length: 64 }, (_, j) => (2 * (j + 0.5)) / 64);
  const TEMPERATURES = Array.from({ length: 128 }, (_, j) => 1e-3 * Math.pow(32000, j / 127));
  function catoniAt({ risk, kl: nats, examples, failure }, c) {
    const exponent = c * risk + (nats - Math.log(failure)) / examples;
    return clip(Math.expm1(-exponent) / Math.expm1(-c));
  }
  const smallest = (grid, s, at) =>
    Math.min(...grid.map((each) => at({ ...s, failure: s.failure / grid.length }, each)));

  const BOUNDS = {
    seeger_exact: ["PAC-Bayes-kl, ξ(n)", (s) => clip(klInverse(s.risk, cost(s, true)))],
    seeger: ["PAC-Bayes-kl, 2√n", (s) => clip(klInverse(s.risk, cost(s)))],
    catoni_union: ["Catoni, grid of 128 paid", (s) => smallest(TEMPERATURES, s, catoniAt)],
    catoni: ["Catoni, temperature 1", (s) => catoniAt(s, 1)],
    quadratic: ["PAC-Bayes-quadratic", (s) => {
      const half = cost(s) / 2;
      return clip((Math.sqrt(s.risk + half) + Math.sqrt(half)) ** 2);
    }],
    thiemann: ["PAC-Bayes-λ, best λ", (s) =>
      thiemannAt(s, 2 / (Math.sqrt((2 * s.risk) / cost(s) + 1) + 1))],
    thiemann_union: ["PAC-Bayes-λ, grid of 64 paid", (s) => smallest(TRADE_OFFS, s, thiemannAt)],
    mcallester: ["McAllester", (s) => clip(s.risk + Math.sqrt(cost(s) / 2))],
    holdout: ["Plain test (Clopper–Pearson)", holdout],
  };

  function compute(s) {
    const values = Object.fromEntries(
      Object.entries(BOUNDS).map(([name, [, at]]) => [name, at(s)]));
    return { ...values, holdout_lower: holdoutLower(s) };
  }

  // Measured, confidence (the bound with a KL of 0, less the risk), complexity: they add up.
  function terms(name, s, value) {
    if (name === "holdout") {
      const measured = s.errors / s.examples;
      return [measured, value - measured, 0];
    }
    const free = Math.min(value, BOUNDS[name][1]({ ...s, kl: 0 }));
    return [s.risk, Math.max(0, free - s.risk), value - free];
  }

  return { BOUNDS, compute, terms, klInverse, moment };
})();

if (typeof document !== "undefined" && document.getElementById("explorer")) {
  const KNOBS = {
    risk: { from: (x) => x, to: (v) => v, fix: (v) => Math.min(1, Math.max(0, v)) },
    kl: { from: (x) => Math.expm1(x), to: (v) => Math.log1p(v), fix: (v) => Math.max(0, v) },
    examples: { from: (x) => 10 ** x, to: (v) => Math.log10(v),
      fix: (v) => Math.min(1e7, Math.max(1, Math.round(v))) },
    confidence: { from: (x) => 1 - 10 ** -x, to: (v) => -Math.log10(1 - v),
      fix: (v) => Math.min(1 - 1e-9, Math.max(0.01, v)) },
    errors: { from: (x) => Math.expm1(x), to: (v) => Math.log1p(v),
      fix: (v) => Math.max(0, Math.round(v)) },
  };
  const find = (id) => document.getElementById(id);
  const tidy = (v) => String(Number(v.toPrecision(v < 1 ? 4 : 3)));
  // Printed promises are rounded up, as in the library.
  const shown = (v) => (Math.min(1, Math.ceil(v * 1e4 - 1e-9) / 1e4) * 100).toFixed(2) + " %";

  function settings() {
    const s = {};
    for (const [name, knob] of Object.entries(KNOBS)) {
      const value = Number(find(name).value);
      s[name] = knob.fix(Number.isFinite(value) ? value : 0);
    }
    s.errors = Math.min(s.errors, s.examples);
    s.failure = 1 - s.confidence;
    return s;
  }

  function draw() {
    const s = settings();
    const values = explorer.compute(s);
    for (const [name, [title]] of Object.entries(explorer.BOUNDS)) {
      const row = find("row-" + name);
      const parts = explorer.terms(name, s, values[name]);
      row.dataset.value = values[name];
      row.querySelector(".value").textContent = shown(values[name]);
      row.querySelectorAll(".bar span").forEach((part, index) => {
        part.style.width = 100 * parts[index] + "%";
      });
      row.querySelector(".bar").setAttribute("aria-label",
        `${title}: measured ${shown(parts[0])}, confidence ${shown(parts[1])}, complexity ${shown(parts[2])}`);
    }
    find("per-example").textContent = tidy(s.kl / s.examples);
    find("lower").textContent = (Math.floor(values.holdout_lower * 1e4) / 100).toFixed(2) + " %";
    const { failure, ...kept } = s;
    history.replaceState(null, "", "#" + new URLSearchParams(kept));
  }

  const body = find("rows");
  for (const [name, [title]] of Object.entries(explorer.BOUNDS)) {
    const row = document.createElement("tr");
    row.id = "row-" + name;
    row.innerHTML = `<th scope="row">${title}<br><code>${name}</code></th>` +
      '<td class="value"></td><td class="picture"><div class="bar" role="img">' +
      '<span class="measured"></span><span class="confidence"></span>' +
      '<span class="complexity"></span></div></td>';
    body.append(row);
  }
  const given = new URLSearchParams(location.hash.slice(1));
  for (const [name, knob] of Object.entries(KNOBS)) {
    const number = find(name), slider = find(name + "-slider");
    if (given.has(name)) number.value = given.get(name);
    slider.value = knob.to(Number(number.value));
    slider.addEventListener("input", () => {
      number.value = tidy(knob.fix(knob.from(Number(slider.value))));
      draw();
    });
    number.addEventListener("input", () => {
      slider.value = knob.to(knob.fix(Number(number.value)));
      draw();
    });
  }
  find("explorer").hidden = false;
  draw();
}
