"use strict";
/* The page of a run: its results. Widths, accuracy against size, learning curves, cost. */

const budgets = unique(data.results.map((result) => result.budget));
const seeds = unique(data.results.map((result) => result.seed));
const sum = (values) => d3.sum(values);
const shades = (count) => d3.range(count).map((place) => d3.schemeTableau10[[0, 1, 4, 2, 6, 3, 5, 7, 8, 9][place % 10]]);

opening("run report");
if (data.results.length) { cards(); verdict(); widths(); front(); }
if (data.columns) columns();
curves();
if (data.results.length) parameters();
searchSections();
cost();
making();
themes();

function cards() {
  const row = el("div", { class: "cards", id: "cards" });
  for (const budget of budgets) {
    const group = data.results.filter((result) => result.budget === budget);
    const stored = (key) => ["full", "compact"].map((model) => mean(group.map((result) => result[model].stored[key])));
    const [before, after] = stored("all"), store = [...new Set(group.map((result) => result.store))].join(" or "), parts = [["tables", "tables"], ["first_order", "first-order"], ["scales", "of both: scales"], ["dense", "dense layers"]];
    const change = data.verdict.changes.find((one) => one.budget === budget);
    row.append(el("div", { class: "card" },
      el("h3", {}, "Budget " + budget),
      el("b", { class: "big" }, Math.round((1 - after / before) * 100) + "% smaller"),
      el("dl", {},
        el("dt", {}, "embedding"), el("dd", {}, number(mean(group.map((r) => r.full.embedding))) + " → " + number(mean(group.map((r) => r.compact.embedding)))),
        el("dt", {}, "stored as"), el("dd", {}, "float32" + (store === "float32" ? "" : " → " + store)),
        el("dt", {}, "stored"), el("dd", {}, bytes(before) + " → " + bytes(after)),
        ...parts.map(([key, name]) => [name, stored(key)]).filter(([, [full, small]]) => full || small)
          .flatMap(([name, [full, small]]) => [el("dt", {}, name), el("dd", {}, bytes(full) + " → " + bytes(small))]),
        el("dt", {}, "test AUC"), el("dd", {}, auc(mean(group.map((r) => r.full.auc))) + " → " + auc(mean(group.map((r) => r.compact.auc)))),
        el("dt", {}, "change"), el("dd", {}, withInterval(change.auc, "+")),
        el("dt", {}, "test log loss"), el("dd", {}, auc(mean(group.map((r) => r.full.log_loss))) + " → " + auc(mean(group.map((r) => r.compact.log_loss)))),
        el("dt", {}, "change"), el("dd", {}, withInterval(change.log_loss, "+")),
        el("dt", {}, "columns"), el("dd", {}, number(mean(group.map((r) => r.full.columns))) + " → " + number(mean(group.map((r) => r.compact.columns)))))));
  }
  main.append(row);
  main.append(el("p", { class: "note" }, (seeds.length > 1 ? `Means over ${seeds.length} seeds. ` : "One seed. ")
    + `The sentence above describes the smallest model whose validation AUC is within ${data.close} of the best. Stored sizes are those of the weights, without vocabularies. Each model is tested once, at the end; no choice uses the test rows.`));
}

/** Every model beside the baselines: a dot, and a line for its 95% interval. */
function verdict() {
  const { models, changes, fields } = data.verdict;
  const node = section("verdict", "Against simple baselines", el("p", {}, "Lines are 95% intervals, from the test rows (DeLong's for AUC) and, if there are several, the seeds. "
    + (models[0].name === "constant" ? "A constant always predicts the click rate of the training rows. The logistic regression has one weight per id of the same encoded rows, with the L2 strength of the best validation log loss." : "This run was made without baselines.")));
  const grid = el("div", { class: "grid two" });
  node.append(grid);
  const names = models.map((model) => model.name), last = names.indexOf("full model");
  const tone = (model) => (model.name === "full model" ? "var(--dropped)" : names.indexOf(model.name) > last ? "var(--kept)" : "var(--soft)");
  for (const [key, title] of [["auc", "Test AUC: higher is better"], ["log_loss", "Test log loss: lower is better"]]) {
    const all = models.flatMap((model) => [model[key].value, model[key].low ?? model[key].value, model[key].high ?? model[key].value]);
    figure(grid, { id: "chart-verdict-" + key, title }, (width) => {
      const left = Math.min(width * 0.42, 18 + 7.2 * d3.max(names, (name) => name.length)), texts = shorts(names, Math.floor((left - 12) / 7.2));
      return look(width, title, {
        height: names.length * 34 + 62, marginLeft: left, marginRight: 64,
        x: { label: null, grid: true, nice: true, ticks: width < 420 ? 3 : 5, tickFormat: fine(all), insetLeft: 8 },
        y: { domain: names, label: null, tickSize: 0, tickFormat: (name) => texts[names.indexOf(name)] },
        marks: [
          Plot.ruleX([models.find((model) => model.name === "full model")[key].value], { stroke: "var(--line)", strokeDasharray: "3 3" }),
          Plot.ruleY(models.filter((model) => model[key].low !== null), { y: "name", x1: (model) => model[key].low, x2: (model) => model[key].high, stroke: tone, strokeWidth: 3, strokeLinecap: "round" }),
          Plot.dot(models, { y: "name", x: (model) => model[key].value, r: 5, fill: tone, title: (model) => `${model.name}: ${withInterval(model[key])}` }),
          Plot.text(models, { y: "name", x: (model) => model[key].high ?? model[key].value, text: (model) => model[key].value.toFixed(4), dx: 9, textAnchor: "start", fill: "currentColor" }),
        ],
      });
    });
  }
  table(node, [
    { head: "model", value: (row) => row.name, text: true },
    { head: "test AUC", value: (row) => row.auc.value, show: (row) => withInterval(row.auc) },
    { head: "test log loss", value: (row) => row.log_loss.value, show: (row) => withInterval(row.log_loss) },
    { head: "embedding parameters", value: (row) => row.embedding ?? -1, show: (row) => number(row.embedding) },
    { head: "all parameters", value: (row) => row.all ?? -1, show: (row) => number(row.all) },
  ], models, { caption: "Verdict", mark: (row) => (row.embedding === null ? "full" : "") });
  table(node, [
    { head: "compact minus full, same test rows", value: (row) => row.budget, text: true },
    { head: "test AUC", value: (row) => row.auc.value, show: (row) => withInterval(row.auc, "+") },
    { head: "test log loss", value: (row) => row.log_loss.value, show: (row) => withInterval(row.log_loss, "+") },
  ], changes, { caption: "Differences" });
  if (!fields.length) return;
  const single = el("details", { id: "single" }, el("summary", {}, "Test AUC of each field by itself"));
  node.append(single);
  table(single, [
    { head: "field", value: (row) => row.name, text: true },
    { head: "test AUC of its click rates in the training rows", value: (row) => row.auc, show: (row) => auc(row.auc) },
  ], fields, { caption: "Single fields", sort: { column: 1, down: true } });
}

/** Every raw column: what it is, and why. */
function columns() {
  const { title, lines, heads, rows } = data.columns;
  const node = section("columns", "Columns of the data", el("p", {}, title), ...lines.map((line) => el("p", { class: "note" }, line)));
  const all = heads.map((head, place) => ({ head, value: (row) => row[place], text: true }));
  table(node, all, rows, { caption: "Columns" });
}

function widthRows(budget, seed) {
  const group = data.results.filter((result) => result.budget === budget && (seed === "" || String(result.seed) === seed));
  return data.fields.map((field, j) => {
    const before = mean(group.map((result) => result.before[j])), after = mean(group.map((result) => result.after[j]));
    return { name: field.name, place: j, cardinality: field.cardinality, before, after, saving: field.cardinality * (before - after) };
  });
}

function widths() {
  const node = section("widths", "Width of each field", el("p", {}, "Each field's embedding width in the full and the compact model. A field of width 0 has no embedding."));
  const controls = el("div", { class: "controls" });
  node.append(controls);
  const state = { budget: data.chosen, seed: seeds.length > 1 ? "" : String(seeds[0]), sort: "saving", find: "" };
  const changed = (key) => (value) => { state[key] = value; redraw(); refill(rows()); };
  choice(controls, { id: "widths-budget", label: "Budget" }, budgets.map((b) => [b, b]), changed("budget")).value = data.chosen;
  if (seeds.length > 1) choice(controls, { id: "widths-seed", label: "Seed" }, [["", "mean of all seeds"], ...seeds.map((s) => [String(s), "seed " + s])], changed("seed"));
  const sorts = { saving: "parameters saved", after: "width after", cardinality: "cardinality", place: "order in the data", name: "name" };
  choice(controls, { id: "widths-sort", label: "Sort by" }, Object.entries(sorts), changed("sort"));
  if (data.fields.length > 30) {
    const find = el("input", { type: "search", id: "widths-find", oninput: () => changed("find")(find.value.toLowerCase()) });
    controls.append(el("label", {}, "Find a field", find));
  }
  const rows = () => {
    const found = widthRows(state.budget, state.seed).filter((row) => row.name.toLowerCase().includes(state.find));
    const up = state.sort === "name" || state.sort === "place";
    return found.sort((a, b) => (up ? d3.ascending : d3.descending)(a[state.sort], b[state.sort]) || a.place - b.place);
  };
  const shown = (length) => shorts(data.fields.map((field) => field.name), length);
  const round = (value) => (Number.isInteger(value) ? String(value) : value.toFixed(1));
  const redraw = figure(node, { id: "chart-widths", title: "Width of each field, before and after", tall: data.fields.length > 30, legend: [["full model", "var(--before)"], ["compact model", "var(--kept)"]] }, (width) => {
    const found = rows();
    const step = found.length > 100 ? 15 : 22, left = Math.min(width * 0.36, 16 + 7 * d3.max(found, (row) => Math.min(26, row.name.length)) || 60);
    if (!found.length) return el("p", {}, "No field name contains this text.");
    const names = shown(Math.floor((left - 12) / 7.2));
    return look(width, "Width of each field before and after", {
      height: found.length * step + 66, marginLeft: left, marginRight: width < 520 ? 76 : 180,
      x: { label: "columns", grid: true, tickFormat: "d", ticks: whole(0, d3.max(found, (row) => row.before)), axis: found.length > 30 ? "both" : "bottom" },
      y: { domain: found.map((row) => row.place), label: null, tickFormat: (place) => names[place], padding: 0.25, tickSize: 0 },
      marks: [
        Plot.barX(found, { x: "before", y: "place", fill: "var(--before)", title: (row) => row.name }),
        Plot.barX(found, { x: "after", y: "place", fill: "var(--kept)", insetTop: step > 16 ? 3 : 2, insetBottom: step > 16 ? 3 : 2,
          title: (row) => `${row.name}\n${round(row.before)} → ${round(row.after)} columns\ncardinality ${number(row.cardinality)}\n${number(row.saving)} parameters saved` }),
        Plot.text(found, { x: "before", y: "place", dx: 6, textAnchor: "start", fontSize: step > 16 ? 12 : 10,
          text: (row) => `${round(row.before)} → ${round(row.after)}` + (width < 520 ? "" : `, saves ${number(row.saving)}`) }),
      ],
    });
  });
  const all = el("details", {}, el("summary", {}, "Show as a table"));
  node.append(all);
  const refill = table(all, [
    { head: "field", value: (row) => row.name, text: true },
    { head: "cardinality", value: (row) => row.cardinality, show: (row) => number(row.cardinality) },
    { head: "width before", value: (row) => row.before, show: (row) => round(row.before) },
    { head: "width after", value: (row) => row.after, show: (row) => round(row.after) },
    { head: "parameters saved", value: (row) => row.saving, show: (row) => number(row.saving) },
  ], rows(), { caption: "Widths per field" });
}

function front() {
  const node = section("front", "Accuracy against size", el("p", {}, "Every dot is one seed; the bar is the range over seeds, the line joins the means. The full model is at the right."));
  const points = data.results.map((r) => ({ label: r.budget, seed: r.seed, x: r.compact.stored.per_id, y: r.compact.auc, columns: r.compact.columns, kind: "compact" }))
    .concat(data.results.filter((r) => r.budget === budgets[0]).map((r) => ({ label: "full model", seed: r.seed, x: r.full.stored.per_id, y: r.full.auc, columns: r.full.columns, kind: "full" })));
  const groups = d3.groups(points, (p) => p.label).map(([label, group]) => ({
    label, kind: group[0].kind, x: mean(group.map((p) => p.x)), y: mean(group.map((p) => p.y)), low: d3.min(group, (p) => p.y), high: d3.max(group, (p) => p.y) }));
  groups.sort((a, b) => a.x - b.x);
  const names = { fontWeight: 600, fill: "currentColor", stroke: "var(--card)", strokeWidth: 4 };
  const narrow = groups.length > 1 && groups.at(-1).x / groups[0].x < 1.5;
  const grid = el("div", { class: "grid" });
  node.append(grid);
  figure(grid, { id: "chart-front", title: "Test AUC against stored bytes", legend: [["compact", "var(--kept)"], ["full model", "var(--dropped)"]] }, (width) => look(width, "Test AUC against stored bytes", {
    height: 340, marginLeft: 62, marginRight: 40,
    x: { label: data.size, type: narrow ? "linear" : "log", grid: true, tickFormat: "~s", ticks: narrow ? 4 : decades(points.map((p) => p.x)), insetLeft: 40, insetRight: 40 },
    y: { label: "test AUC", grid: true, nice: true, tickFormat: fine(points.map((p) => p.y)), insetTop: 24, insetBottom: 30 },
    marks: [
      Plot.line(groups, { x: "x", y: "y", stroke: "var(--soft)", strokeDasharray: "4 3" }),
      Plot.ruleX(groups, { x: "x", y1: "low", y2: "high", stroke: "var(--soft)", strokeWidth: 2 }),
      Plot.dot(points, { x: "x", y: "y", r: 4.5, fill: (p) => (p.kind === "full" ? "var(--dropped)" : "var(--kept)"), fillOpacity: 0.75,
        title: (p) => `${p.label}, seed ${p.seed}\n${number(p.x)} bytes, ${p.columns} columns\ntest AUC ${auc(p.y)}` }),
      // labels alternate above and below, so that neighbors do not overlap
      Plot.text(groups.filter((_, place) => place % 2 === 0), { x: "x", y: "high", text: "label", dy: -14, ...names }),
      Plot.text(groups.filter((_, place) => place % 2 === 1), { x: "x", y: "low", text: "label", dy: 15, ...names }),
    ],
  }));
  table(node, [
    { head: "model", value: (row) => row.label, text: true },
    { head: "seed", value: (row) => row.seed },
    { head: "columns", value: (row) => row.size.columns, show: (row) => number(row.size.columns) },
    { head: "embedding", value: (row) => row.size.embedding, show: (row) => number(row.size.embedding) },
    { head: "first order", value: (row) => row.size.first_order, show: (row) => number(row.size.first_order) },
    { head: "dense", value: (row) => row.size.dense, show: (row) => number(row.size.dense) },
    { head: "validation AUC", value: (row) => row.size.valid, show: (row) => auc(row.size.valid) },
    { head: "test AUC", value: (row) => row.size.auc, show: (row) => auc(row.size.auc) },
    { head: "test log loss", value: (row) => row.size.log_loss, show: (row) => auc(row.size.log_loss) },
  ], data.results.filter((r) => r.budget === budgets[0]).map((r) => ({ label: "full model", seed: r.seed, size: r.full }))
    .concat(data.results.map((r) => ({ label: r.budget, seed: r.seed, size: r.compact }))), { caption: "Results", mark: (row) => (row.label === "full model" ? "full" : "") });
}

function curves() {
  const stages = unique(data.stages.map((stage) => stage.stage));
  const node = section("curves", "Learning curves of each stage", el("p", {}, "Epoch 0 is the model before the stage's first epoch. AUC is measured on the validation split."));
  const all = unique(data.stages.map((stage) => stage.budget ?? "all budgets"));
  const colors = new Map(all.map((name, place) => [name, name === "all budgets" ? "var(--soft)" : shades(all.length)[place]]));
  const grid = el("div", { class: "grid three" });
  node.append(grid);
  for (const [key, label] of [["auc", "validation AUC"], ["loss", "training loss"]]) {
    for (const stage of stages) {
      const lines = data.stages.filter((one) => one.stage === stage).flatMap((one) => one.history
        .filter((epoch) => epoch[key] !== null)
        .map((epoch, place) => ({ place: key === "loss" ? place + 1 : place, y: epoch[key], group: one.budget ?? "all budgets", z: `${one.budget} ${one.seed}`, seed: one.seed })));
      if (!lines.length) continue;
      const names = unique(lines.map((line) => line.group));
      const last = d3.max(lines, (line) => line.place);
      figure(grid, { id: `chart-${stage}-${key}`, title: `${stage}: ${label}`, legend: names.map((name) => [name === "all budgets" ? "one for all budgets" : name, colors.get(name)]) }, (width) => look(width, `${stage}: ${label}`, {
        height: 220, marginLeft: 54,
        x: { label: "epoch", ticks: whole(d3.min(lines, (line) => line.place), last), tickFormat: "d" },
        y: { label: null, grid: true, nice: true, ticks: 5, tickFormat: fine(lines.map((line) => line.y), 2) },
        marks: [
          Plot.line(lines, { x: "place", y: "y", z: "z", stroke: (line) => colors.get(line.group), strokeWidth: 1.6, strokeOpacity: 0.85 }),
          Plot.dot(lines, { x: "place", y: "y", r: 2.4, fill: (line) => colors.get(line.group), title: (line) => `${line.group}, seed ${line.seed}, epoch ${line.place}\n${label} ${line.y.toFixed(4)}` }),
        ],
      }));
    }
  }
}

function parameters() {
  const node = section("parameters", "Parameters", el("p", {}, "Budgets in columns and parameters apply to the embedding tables, budgets in bytes also to first-order weights. Dense layers shrink with the tables."));
  const kinds = [["embedding", "embedding tables", "var(--kept)"], ["dense", "dense layers", "var(--dense)"], ["first_order", "first-order weights", "var(--linear)"]];
  const shown = kinds.filter(([key]) => data.results.some((r) => r.full[key] || r.compact[key]));
  const models = [["full model", data.results.filter((r) => r.budget === budgets[0]).map((r) => r.full)],
    ...budgets.map((budget) => [budget, data.results.filter((r) => r.budget === budget).map((r) => r.compact)])];
  const bars = models.flatMap(([model, sizes]) => shown.map(([key, name, color]) => ({ model, name, color, value: mean(sizes.map((size) => size[key])) })));
  const totals = models.map(([model, sizes]) => ({ model, value: mean(sizes.map((size) => size.all)) }));
  figure(node, { id: "chart-parameters", title: "Parameters of each model", legend: shown.map(([, name, color]) => [name, color]) }, (width) => look(width, "Parameters of each model", {
    height: models.length * 34 + 70, marginLeft: Math.min(width * 0.36, 20 + 7 * d3.max(models, ([name]) => name.length)), marginRight: 92,
    x: { label: "parameters", grid: true, tickFormat: "~s", ticks: width < 640 ? 4 : 8 }, y: { domain: models.map(([name]) => name), label: null, tickSize: 0 },
    marks: [
      Plot.barX(bars, Plot.stackX({ x: "value", y: "model", z: "name", fill: "color", title: (bar) => `${bar.model}: ${bar.name} ${number(bar.value)}` })),
      Plot.text(totals, { x: "value", y: "model", text: (bar) => number(bar.value), dx: 6, textAnchor: "start" }),
    ],
  }));
  if (!data.stored.rows.length) return;
  node.append(el("h3", {}, "Stored bytes"), el("p", {}, data.stored.note));
  table(node, data.stored.heads.map((head, place) => ({ head, text: place < 4, value: (row) => (place < 4 ? row[place] : Number(row[place].replaceAll(",", ""))), show: (row) => row[place] })), data.stored.rows, { caption: "Stored bytes" });
}

function cost() {
  const node = section("cost", "Cost", el("p", {}, `Time and peak memory of each stage${data.device ? ` on ${data.device}` : ""}; all budgets of a seed share one pretraining. Memory is peak resident memory on a CPU, peak allocated memory on a GPU.`));
  const rows = data.stages.map((one) => ({ ...one, label: one.stage + (one.budget ? " " + one.budget : "") }));
  const labels = unique(rows.map((row) => row.label));
  const bars = labels.map((label) => ({ label, seconds: mean(rows.filter((r) => r.label === label).map((r) => r.seconds)), memory: d3.max(rows.filter((r) => r.label === label), (r) => r.memory) / 2 ** 20 }));
  const grid = el("div", { class: "grid two" });
  node.append(grid);
  const draw = (key, format, label) => (width) => look(width, label, {
    height: labels.length * 26 + 66, marginLeft: Math.min(width * 0.45, 16 + 7 * d3.max(labels, (name) => name.length)), marginRight: 84,
    x: { label, grid: true, ticks: 4 }, y: { domain: labels, label: null, tickSize: 0, tickFormat: (name) => short(name, Math.floor(width * 0.45 / 7)) },
    marks: [
      Plot.barX(bars, { x: key, y: "label", fill: "var(--kept)", title: (bar) => `${bar.label}: ${format(bar[key])}` }),
      Plot.text(bars, { x: key, y: "label", text: (bar) => format(bar[key]), dx: 6, textAnchor: "start" }),
    ],
  });
  figure(grid, { id: "chart-seconds", title: "Seconds per stage" + (unique(rows.map((r) => r.seed)).length > 1 ? ", mean of the seeds" : "") }, draw("seconds", seconds, "seconds"));
  figure(grid, { id: "chart-memory", title: "Peak memory per stage" }, draw("memory", (value) => number(value) + " MiB", "MiB"));
}

function making() {
  const lines = (texts) => texts.join("\n") || "not recorded";
  const node = section("making", "Commands, settings and versions");
  node.append(
    el("h3", {}, "Commands"), el("pre", { id: "commands" }, lines(data.commands)),
    el("p", { class: "note" }, `Seeds: ${unique(data.stages.map((stage) => stage.seed)).join(", ")}. ${data.data ? `Dataset fingerprint: ${data.data}. ` : ""}`
      + (Object.keys(data.versions).length ? "Versions: " + Object.entries(data.versions).map(([name, version]) => `${name} ${version}`).join(", ") + "." : "")),
    el("h3", {}, "Settings"), el("pre", { id: "settings" }, settingsText(data.settings)));
}
