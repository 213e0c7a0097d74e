"use strict";
/* The page of a comparison: Pareto fronts, significance, widths per method, cost. */

const tones = ["#4269d0", "#efb118", "#ff725c", "#6cc5b0", "#3ca951", "#ff8ab7", "#a463f2", "#97bbf5", "#9c6b4e", "#9498a0"];
const signs = d3.symbolsFill;
const tone = new Map(data.methods.map((method, place) => [method, tones[place % tones.length]]));
const sign = new Map(data.methods.map((method, place) => [method, signs[place % signs.length]]));
const legend = data.methods.map((method) => [method, tone.get(method), sign.get(method)]);

opening("comparison");
if (data.rows.length) { versus(); fronts(); significance(); heat(); price(); }
making();
themes();

/** One row per method: its mean difference to the baseline, and the interval over seeds. */
function versus() {
  if (!data.differences.length) return;
  const node = section("versus", `Difference to ${data.baseline}`, el("p", {}, `Test AUC of each method minus that of ${data.baseline}, at the same budget and seed: the mean over seeds, and its 95% interval (paired t). An interval that contains 0 means that these seeds cannot tell the two apart. Intervals are not corrected for the number of methods; the table below also has corrected p-values.`));
  const grid = el("div", { class: "grid two" });
  node.append(grid);
  const tone = (row) => (row.low === null || (row.low <= 0 && row.high >= 0) ? "var(--soft)" : row.value > 0 ? "var(--kept)" : "var(--dropped)");
  const show = (value) => (value < 0 ? "−" : "+") + Math.abs(value).toFixed(4);
  d3.groups(data.differences, (row) => row.model, (row) => row.budget).forEach(([model, budgets], m) => budgets.forEach(([budget, found], b) => {
    const rows = d3.sort(found, (row) => -row.value), names = rows.map((row) => row.method);
    const ends = [0, ...rows.flatMap((row) => [row.value, row.low ?? row.value, row.high ?? row.value])];
    const title = `${model}, ${budget}: test AUC minus ${data.baseline}`;
    figure(grid, { id: `chart-versus-${m}-${b}`, title, legend: [["better", "var(--kept)"], ["worse", "var(--dropped)"], ["undecided", "var(--soft)"]] }, (width) => {
      const left = Math.min(width * 0.36, 18 + 7.2 * d3.max(names, (name) => name.length)), texts = shorts(names, Math.floor((left - 12) / 7.2));
      return look(width, title, {
        height: names.length * 26 + 66, marginLeft: left, marginRight: 68,
        x: { label: "difference of test AUC", grid: true, nice: true, ticks: width < 420 ? 3 : 5, tickFormat: fine(ends), domain: d3.extent(ends) },
        y: { domain: names, label: null, tickSize: 0, tickFormat: (name) => texts[names.indexOf(name)] },
        marks: [
          Plot.ruleX([0], { stroke: "currentColor", strokeWidth: 1.2 }),
          Plot.ruleY(rows.filter((row) => row.low !== null), { y: "method", x1: "low", x2: "high", stroke: tone, strokeWidth: 3, strokeLinecap: "round" }),
          Plot.dot(rows, { y: "method", x: "value", r: 5, fill: tone, title: (row) => `${row.method} at ${row.budget}\n${show(row.value)}${row.low === null ? "" : ` (${show(row.low)} to ${show(row.high)})`}\n${row.pairs} seeds` }),
          Plot.text(rows, { y: "method", x: (row) => row.high ?? row.value, text: (row) => show(row.value), dx: 9, textAnchor: "start", fill: "currentColor" }),
        ],
      });
    });
  }));
}

function fronts() {
  const node = section("front", "The Pareto front", el("p", {}, "Higher is more accurate, further left is smaller. A large dot is the mean over seeds, its bar one standard deviation; small dots are single seeds. The dashed line is the Pareto front: no other method, nor the full model rounded to fewer bits, is better at the same size or smaller."));
  const named = (one) => (!one.store || one.store === "float32" ? "full model" : `full, ${one.store}`);
  const grid = el("div", { class: data.models.length > 1 ? "grid two" : "grid" });
  node.append(grid);
  data.models.forEach((model, place) => {
    const rows = data.rows.filter((row) => row.model === model), fulls = data.full.filter((one) => one.model === model), full = fulls[0];
    if (!rows.length || !full) return;
    const single = data.seeds.filter((one) => one.model === model);
    const front = d3.sort(rows.filter((row) => row.front), (row) => row.size);
    const wide = full.size / d3.min(single, (one) => one.size) > 1.5;
    figure(grid, { id: `chart-front-${place}`, title: `${model}: test AUC against ${data.size}`, legend: [...legend.filter(([name]) => rows.some((row) => row.method === name)), ["full model", "var(--ink)", d3.symbolDiamond]] }, (width) => look(width, `${model}: test AUC against ${data.size}`, {
      height: 420, marginLeft: 62, marginRight: 30,
      x: { label: data.size, type: wide ? "log" : "linear", grid: true, tickFormat: "~s", ticks: wide ? decades([...fulls.map((one) => one.size), ...single.map((one) => one.size)]) : 4, insetLeft: 16, insetRight: 24 },
      y: { label: "test AUC", grid: true, nice: true, tickFormat: fine(rows.map((row) => row.auc)) },
      marks: [
        Plot.ruleY([full.auc], { stroke: "var(--soft)", strokeDasharray: "2 3" }),
        Plot.line(front, { x: "size", y: "auc", stroke: "var(--soft)", strokeDasharray: "5 4", strokeWidth: 1.5 }),
        Plot.ruleX(rows.filter((row) => row.auc_std !== null), { x: "size", y1: (row) => row.auc - row.auc_std, y2: (row) => row.auc + row.auc_std, stroke: (row) => tone.get(row.method), strokeOpacity: 0.6 }),
        Plot.dot(single, { x: "size", y: "auc", r: 1.8, fill: (one) => tone.get(one.method), fillOpacity: 0.55 }),
        Plot.dot(rows, { x: "size", y: "auc", r: 5.5, symbol: (row) => sign.get(row.method), fill: (row) => tone.get(row.method), stroke: "var(--card)", strokeWidth: 0.8,
          title: (row) => `${row.method} at ${row.budget}\n${number(row.size)} ${data.size}\ntest AUC ${auc(row.auc)}${row.auc_std === null ? "" : " ± " + auc(row.auc_std)}, ${row.seeds.length} seeds\nsearch time ${row.search_share.toFixed(2)} x one training${row.front ? "\non the front" : ""}` }),
        Plot.dot(fulls, { x: "size", y: "auc", r: 6, symbol: d3.symbolDiamond, fill: "currentColor", title: (one) => `${named(one)}\n${number(one.size)} ${data.size}\ntest AUC ${auc(one.auc)}` }),
        Plot.text(fulls, { x: "size", y: "auc", text: named, dy: -14, textAnchor: "end", dx: 14, fontWeight: 600, stroke: "var(--card)", strokeWidth: 4, fill: "currentColor" }),
      ],
      symbol: { type: "identity" },
    }));
  });
}

function significance() {
  const seeds = d3.max(data.rows, (row) => row.seeds.length);
  const node = section("table", "Against the baseline", el("p", {}, !data.comparisons ? `No row shares at least two seeds with ${data.baseline}, so there are no tests yet.` : `Every row is tested against ${data.baseline} at the same budget and model, over their common seeds; p-values are two-sided; corrected ones are for all ${data.comparisons} comparisons together (Holm's method).`
    + (seeds < 6 ? ` With ${seeds} seed${seeds > 1 ? "s" : ""} the smallest possible p of Wilcoxon's test is ${(2 / 2 ** seeds).toFixed(2)}.` : "")));
  const p = (value) => (value < 0.001 ? "<0.001" : value.toFixed(3));
  const pick = (get) => ({ value: (row) => (row.test ? get(row.test) : Infinity) });
  const columns = [
    { head: "method", value: (row) => row.method, text: true },
    { head: "budget", value: (row) => row.budget, text: true },
    { head: "test AUC", value: (row) => row.auc, show: (row) => auc(row.auc) + (row.auc_std === null ? "" : " ± " + auc(row.auc_std)) },
    { head: "log loss", value: (row) => row.log_loss, show: (row) => auc(row.log_loss) },
    { head: "embedding", value: (row) => row.embedding, show: (row) => number(row.embedding) },
    { head: "bytes", value: (row) => row.bytes, show: (row) => (row.bytes ? number(row.bytes) : "–") },
    { head: "vs. " + data.baseline, ...pick((test) => -test.difference), show: (row) => (row.test ? (row.test.difference < 0 ? "−" : "+") + Math.abs(row.test.difference).toFixed(4) : "–") },
    ...[["t", "t-test p"], ["t_holm", "t-test p, corrected"], ["wilcoxon", "Wilcoxon p"], ["wilcoxon_holm", "Wilcoxon p, corrected"]]
      .map(([key, head]) => ({ head, ...pick((test) => test[key]), show: (row) => (row.test ? p(row.test[key]) : "–") })),
    { head: "seeds", value: (row) => row.seeds.length, show: (row) => row.seeds.length || "–" },
    { head: "on the front", value: (row) => (row.front ? 1 : 0), show: (row) => (row.front ? "yes" : "") },
  ];
  if (data.models.length > 1) columns.splice(2, 0, { head: "model", value: (row) => row.model, text: true });
  const others = data.others.map((one) => ({ ...one, budget: "–", model: "–", auc_std: null, seeds: [], front: false, test: null }));
  table(node, columns, data.rows.concat(others), { caption: "Significance", mark: (row) => (row.method === data.baseline ? "full" : "") });
}

function heat() {
  const node = section("widths", "Width of each field, by method", el("p", {}, "Mean kept width of every field over the seeds. Darker is wider; a field of width 0 has no embedding."));
  const controls = el("div", { class: "controls" });
  node.append(controls);
  const state = { model: data.models[0], budget: data.budgets[0], sort: "place" };
  const changed = (key) => (value) => { state[key] = value; redraw(); };
  if (data.models.length > 1) choice(controls, { id: "heat-model", label: "Model" }, data.models.map((m) => [m, m]), changed("model"));
  choice(controls, { id: "heat-budget", label: "Budget" }, data.budgets.map((b) => [b, b]), changed("budget"));
  choice(controls, { id: "heat-sort", label: "Sort fields by" }, [["place", "order in the data"], ["cardinality", "cardinality"], ["name", "name"]], changed("sort"));
  const many = data.fields.length > 30;
  const redraw = figure(node, { id: "chart-heat", title: "Width of each field, by method", tall: many }, (width) => {
    const found = data.widths.filter((one) => one.model === state.model && one.budget === state.budget);
    if (!found.length) return el("p", {}, "No complete search of this model and budget.");
    const order = d3.sort(d3.range(data.fields.length), { place: (j) => j, cardinality: (j) => -data.cardinalities[j], name: (j) => data.fields[j] }[state.sort]);
    const cells = found.flatMap((one) => one.after.map((value, j) => ({ method: one.method, j, value })))
      .concat(found[0].before.map((value, j) => ({ method: "full model", j, value })));
    const names = ["full model", ...data.methods.filter((method) => found.some((one) => one.method === method))];
    const left = Math.min(width * 0.3, 18 + 7 * d3.max(data.fields, (name) => Math.min(22, name.length)));
    const texts = shorts(data.fields, Math.floor((left - 12) / 7.2));
    const each = (width - left) / names.length, top = d3.max(cells, (cell) => cell.value);
    return look(width, "Width of each field by method", {
      height: data.fields.length * (many ? 16 : 30) + 84, marginLeft: left, marginTop: 84, marginBottom: 6, padding: 0.04,
      x: { domain: names, label: null, axis: "top", tickSize: 0, tickRotate: -40, tickFormat: (name) => short(name, 16), labelOffset: undefined },
      y: { domain: order, label: null, tickSize: 0, tickFormat: (j) => texts[j] },
      color: { type: "linear", domain: [0, top], range: [css("--mid"), css("--high")] },
      marks: [
        Plot.cell(cells, { x: "method", y: "j", fill: "value", title: (cell) => `${data.fields[cell.j]}, ${cell.method}: ${cell.value} columns` }),
        each > 26 && !many ? Plot.text(cells, { x: "method", y: "j", text: (cell) => (Number.isInteger(cell.value) ? String(cell.value) : cell.value.toFixed(1)), fill: (cell) => (cell.value > top * 0.55 ? css("--back") : css("--ink")) }) : null,
      ],
    });
  });
}

function price() {
  const node = section("cost", "Cost and accuracy", el("p", {}, `Time is given as a multiple of one plain training of the full model, with ${data.jobs} process${data.jobs > 1 ? "es" : ""} running${data.device ? ` on ${data.device}` : ""}. A method that starts from the pretrained model also needs that training.`));
  const grid = el("div", { class: data.models.length > 1 ? "grid two" : "grid" });
  node.append(grid);
  data.models.forEach((model, place) => {
    const rows = data.rows.filter((row) => row.model === model);
    if (!rows.length) return;
    figure(grid, { id: `chart-cost-${place}`, title: `${model}: test AUC against total time`, legend: legend.filter(([name]) => rows.some((row) => row.method === name)) }, (width) => look(width, `${model}: test AUC against total time`, {
      height: 340, marginLeft: 62, x: { label: "pretraining if used, search and retraining, in multiples of one training", grid: true, zero: true, insetRight: 12 }, y: { label: "test AUC", grid: true, nice: true, tickFormat: fine(rows.map((row) => row.auc)) },
      marks: [Plot.dot(rows, { x: "total_share", y: "auc", r: 5, symbol: (row) => sign.get(row.method), fill: (row) => tone.get(row.method), title: (row) => `${row.method} at ${row.budget}\ntest AUC ${auc(row.auc)}\n${row.total_share.toFixed(2)} x one training, search ${seconds(row.search_seconds)}` })],
      symbol: { type: "identity" },
    }));
  });
  const columns = [
    { head: "method", value: (row) => row.method, text: true },
    { head: "budget", value: (row) => row.budget, text: true },
    { head: "test AUC", value: (row) => row.auc, show: (row) => auc(row.auc) },
    { head: "search", value: (row) => row.search_seconds, show: (row) => seconds(row.search_seconds) },
    { head: "search / training", value: (row) => row.search_share, show: (row) => row.search_share.toFixed(2) },
    { head: "total / training", value: (row) => row.total_share, show: (row) => row.total_share.toFixed(2) },
    { head: "search memory", value: (row) => row.search_memory, show: (row) => bytes(row.search_memory) },
    { head: "needs pretraining", value: (row) => (row.uses_pretrained ? 1 : 0), show: (row) => (row.uses_pretrained ? "yes" : "no") },
  ];
  if (data.models.length > 1) columns.splice(2, 0, { head: "model", value: (row) => row.model, text: true });
  table(node, columns, data.rows, { caption: "Cost" });
}

function making() {
  section("making", "Settings and versions",
    el("p", { class: "note" }, Object.entries(data.versions).map(([name, version]) => `${name} ${version}`).join(", ")),
    el("h3", {}, "Settings"), el("pre", { id: "settings" }, settingsText(data.settings)));
}
