"use strict";
/* The page of a run: the search over time, and the similarity of columns. */

function searchSections() {
  dynamics();
  cosines();
}

function dynamics() {
  const node = section("dynamics", "The search over time");
  if (!data.searches.length) {
    node.append(el("p", {}, "There is no trace of a search: it is not complete, or its method has no gate."));
    return;
  }
  node.append(el("p", {}, "Every column has a score, which each step updates; the best columns that fit the budget are kept. "
    + (data.settings.search?.name === "ham" ? "A column is live while its score is above zero. A term common to all scores decreases them while the live columns exceed the budget, and increases them otherwise. " : "")
    + "Move the slider to see the scores and widths at a step."));
  const controls = el("div", { class: "controls" });
  node.append(controls);
  const title = (s) => `${s.budget}, seed ${s.seed}` + (data.searches.some((o) => o.part) ? `, part ${s.part + 1}` : "");
  let search = data.searches.find((s) => s.budget === data.chosen) ?? data.searches[0], moment = search.moments.length - 1;
  const select = choice(controls, { id: "dynamics-search", label: "Search" }, data.searches.map((s, place) => [String(place), title(s)]), (value) => {
    search = data.searches[Number(value)];
    slider.max = String(search.moments.length - 1);
    moment = search.moments.length - 1;
    slider.value = String(moment);
    redrawScores(); redrawLive(); move();
  });
  const slider = el("input", { type: "range", id: "dynamics-time", min: "0", max: String(moment), value: String(moment), step: "1", "aria-describedby": "dynamics-moment",
    oninput: () => { moment = Number(slider.value); move(); } });
  const words = el("output", { id: "dynamics-moment", for: "dynamics-time" });
  controls.append(el("label", { class: "wide" }, el("span", {}, "Time: ", words), slider));
  const unit = (s) => (s.unit === "columns" ? "columns" : s.unit);
  const legend = [["kept at the end", "var(--kept)"], ["dropped at the end", "var(--dropped)"]];
  const color = (s, place) => (s.kept[place] ? "var(--kept)" : "var(--dropped)");
  const upper = el("div", { class: "grid two" }), lower = el("div", { class: "grid two" });
  node.append(upper, lower);
  const rules = new Map();

  /** Adds a dashed line at the chosen step, which moves without redrawing the chart. */
  function rule(key, chart) {
    const x = chart.scale("x"), svg = chart.tagName === "svg" ? chart : chart.querySelector("svg");
    const line = document.createElementNS("http://www.w3.org/2000/svg", "line");
    line.setAttribute("class", "now");
    line.setAttribute("y1", "26");
    line.setAttribute("y2", String(Number(svg.getAttribute("height")) - 48));
    svg.append(line);
    rules.set(key, () => { const at = x.apply(search.moments[moment] ?? 0); line.setAttribute("x1", at); line.setAttribute("x2", at); });
    rules.get(key)();
    return chart;
  }

  const redrawScores = figure(upper, { id: "chart-scores", title: "Score of every column over time", legend }, (width, caption) => {
    const s = search;
    caption.textContent = s.owners.length < s.columns ? `${s.owners.length} of ${s.columns} columns are drawn, evenly spaced by final rank.` : `All ${s.columns} columns.`;
    const points = s.owners.flatMap((_, column) => s.moments.map((step, place) => ({ step, score: s.scores[column][place] * s.scale, column })));
    return rule("scores", look(width, "Score of every column over time", {
      height: 300, marginLeft: 54, x: { label: "steps", tickFormat: "~s", ticks: 6 }, y: { label: "score", grid: true, nice: true, tickFormat: "~r", ticks: 6 },
      marks: [
        Plot.line(points.filter((p) => !s.kept[p.column]), { x: "step", y: "score", z: "column", stroke: "var(--dropped)", strokeWidth: 1, strokeOpacity: s.owners.length > 60 ? 0.45 : 0.8 }),
        Plot.ruleY([0], { stroke: "currentColor", strokeWidth: 1 }),
        Plot.line(points.filter((p) => s.kept[p.column]), { x: "step", y: "score", z: "column", stroke: "var(--kept)", strokeWidth: 1.3, strokeOpacity: 0.9 }),
        s.moments.length < 4 ? Plot.dot(points, { x: "step", y: "score", r: 2.5, fill: (p) => color(s, p.column) }) : null,
      ],
    }));
  });

  const redrawLive = figure(upper, { id: "chart-live", title: "Live cost against the target", legend: [["live", "var(--kept)"], ["target", "var(--dropped)"]] }, (width, caption) => {
    const s = search;
    caption.textContent = `Target ${number(s.limit)} ${unit(s)}; masked columns were re-activated ${number(s.reactivated)} times. At the end, the search keeps exactly the best columns that fit.`;
    const points = s.at.map((step, place) => ({ step, value: s.cost[place] }));
    return rule("live", look(width, "Live count over time against the target", {
      height: 300, marginLeft: 54, x: { label: "steps", tickFormat: "~s", ticks: 6 }, y: { label: "live " + unit(s), grid: true, zero: true, tickFormat: "~s", ticks: 6 },
      marks: [
        Plot.ruleY([s.limit], { stroke: "var(--dropped)", strokeWidth: 2 }),
        Plot.line(points, { x: "step", y: "value", stroke: "var(--kept)", strokeWidth: 1.5 }),
      ],
    }));
  });

  const many = data.fields.length > 30;
  const redrawNow = figure(lower, { id: "chart-moment", title: "Scores at this step, by field", legend, tall: many }, (width) => {
    const s = search;
    const left = Math.min(width * 0.36, 18 + 7 * d3.max(data.fields, (field) => Math.min(22, field.name.length)));
    const names = shorts(data.fields.map((field) => field.name), Math.floor((left - 12) / 7.2));
    const points = s.owners.map((owner, column) => ({ owner, score: s.scores[column][moment] * s.scale, column }));
    return look(width, "Score of every column at the chosen step", {
      height: data.fields.length * (many ? 15 : 26) + 68, marginLeft: left,
      x: { label: "score", grid: true, tickFormat: "~r", ticks: width < 400 ? 4 : 6, axis: many ? "both" : "bottom", domain: d3.extent([0, ...points.map((p) => p.score)]), nice: true },
      y: { domain: d3.range(data.fields.length), label: null, tickSize: 0, tickFormat: (j) => names[j] },
      marks: [
        Plot.ruleX([0], { stroke: "currentColor", strokeWidth: 1.3 }),
        Plot.tickX(d3.sort(points, (p) => s.kept[p.column]), { x: "score", y: "owner", stroke: (p) => color(s, p.column), strokeWidth: 2, strokeOpacity: 0.8, insetTop: 2, insetBottom: 2 }),
      ],
    });
  });

  const redrawWidths = figure(lower, { id: "chart-moment-widths", title: "Widths if the search ended at this step", tall: many, legend: [["at this step", "var(--kept)"], ["at the end", "var(--ink)"]] }, (width) => {
    const s = search, now = s.widths[moment] ?? [], end = s.widths.at(-1) ?? [];
    const left = Math.min(width * 0.36, 18 + 7 * d3.max(data.fields, (field) => Math.min(22, field.name.length)));
    const names = shorts(data.fields.map((field) => field.name), Math.floor((left - 12) / 7.2));
    const bars = data.fields.map((_, j) => ({ j, now: now[j] ?? 0, end: end[j] ?? 0 }));
    return look(width, "Widths at the chosen step", {
      height: data.fields.length * (many ? 15 : 26) + 68, marginLeft: left, marginRight: 40,
      x: { label: "columns", grid: true, domain: [0, Math.max(1, d3.max(s.widths.flat()) ?? 1)], tickFormat: "d", ticks: whole(0, Math.max(1, d3.max(s.widths.flat()) ?? 1)), axis: many ? "both" : "bottom" },
      y: { domain: d3.range(data.fields.length), label: null, tickSize: 0, tickFormat: (j) => names[j] },
      marks: [
        Plot.barX(bars, { x: "now", y: "j", fill: "var(--kept)", insetTop: 2, insetBottom: 2, title: (bar) => `${data.fields[bar.j].name}: ${bar.now} now, ${bar.end} at the end` }),
        Plot.tickX(bars, { x: "end", y: "j", stroke: "currentColor", strokeWidth: 2.5 }),
        Plot.text(bars, { x: "now", y: "j", text: (bar) => String(bar.now), dx: 6, textAnchor: "start", stroke: "var(--card)", fill: "currentColor", strokeWidth: 3 }),
      ],
    });
  });

  function move() {
    words.textContent = `step ${number(search.moments[moment] ?? 0)} of ${number(search.steps)}`;
    slider.setAttribute("aria-valuetext", words.textContent);
    rules.forEach((place) => place());
    redrawNow(); redrawWidths();
  }
  select.value = String(data.searches.indexOf(search));
  move();
}

function cosines() {
  const node = section("cosines", "Similarity of columns");
  const panels = data.cosines;
  const usable = data.fields.map((_, j) => j).filter((j) => panels.some((panel) => panel.fields[j] && panel.fields[j].width > 1));
  if (!usable.length) {
    node.append(el("p", {}, panels.length ? "No field has two columns to compare." : "There are no pretrained tables to compare."));
    return;
  }
  node.append(el("p", {}, "Cosine similarity between the columns of one pretrained table: 0 if two columns are orthogonal, 1 or −1 if one is a multiple of the other. The orthogonality term keeps columns dissimilar before the search selects among them."));
  if (panels.length === 1) node.append(el("p", { class: "note" }, `This run was pretrained ${panels[0].label}. To see both, make the report with --against and a run folder whose pretrain.regularity.strength ${panels[0].label.startsWith("without") ? "is above 0" : "is 0"}.`));
  const size = (panel, j) => { const upper = panel.fields[j]?.upper ?? []; return upper.length ? mean(upper.map((value) => Math.abs(value) / 100)) : null; };
  const controls = el("div", { class: "controls" });
  node.append(controls);
  let chosen = usable[0];
  const redraw = [];
  choice(controls, { id: "cosines-field", label: "Field" }, usable.map((j) => [String(j), data.fields[j].name]), (value) => { chosen = Number(value); redraw.forEach((draw) => draw()); });
  const grid = el("div", { class: "grid two" });
  node.append(grid);
  panels.forEach((panel, place) => {
    redraw.push(figure(grid, { id: `chart-cosines-${place}`, title: `Pretrained ${panel.label}, seed ${panel.seed}` }, (width, caption) => {
      const field = panel.fields[chosen];
      if (!field || field.width < 2) { caption.textContent = ""; return el("p", {}, `${data.fields[chosen].name} has fewer than two columns.`); }
      caption.textContent = `${data.fields[chosen].name}: mean absolute cosine ${size(panel, chosen).toFixed(2)}.`;
      const cells = [];
      let at = 0;
      for (let a = 0; a < field.width; a += 1) {
        cells.push({ a, b: a, value: 1 });
        for (let b = a + 1; b < field.width; b += 1, at += 1) cells.push({ a, b, value: field.upper[at] / 100 }, { a: b, b: a, value: field.upper[at] / 100 });
      }
      const side = Math.min(width, 460), texts = field.width <= 8;
      return look(side, `Cosines between the columns of ${data.fields[chosen].name}`, {
        height: side, marginLeft: 40, marginTop: 10, marginRight: 10, padding: 0.03,
        x: { domain: d3.range(field.width), label: "column", tickSize: 0 }, y: { domain: d3.range(field.width), label: null, tickSize: 0 },
        color: { type: "linear", domain: [-1, 0, 1], range: [css("--low"), css("--mid"), css("--high")], label: "cosine" },
        marks: [
          Plot.cell(cells, { x: "a", y: "b", fill: "value", title: (cell) => `columns ${cell.a} and ${cell.b}: ${cell.value.toFixed(2)}` }),
          texts ? Plot.text(cells, { x: "a", y: "b", text: (cell) => cell.value.toFixed(2), fill: (cell) => (Math.abs(cell.value) > 0.6 ? css("--back") : css("--ink")), fontSize: 11 }) : null,
        ],
      });
    }));
  });
  const dots = panels.flatMap((panel, place) => usable.map((j) => ({ j, place, value: size(panel, j) })).filter((dot) => dot.value !== null));
  const tones = ["var(--kept)", "var(--dropped)"];
  redraw.push(figure(grid, { id: "chart-cosines-all", title: "Mean absolute cosine of every field", tall: usable.length > 30, legend: panels.map((panel, place) => [panel.label, tones[place]]) }, (width) => {
    const left = Math.min(width * 0.36, 18 + 7 * d3.max(usable, (j) => Math.min(22, data.fields[j].name.length)));
    const names = shorts(data.fields.map((field) => field.name), Math.floor((left - 12) / 7.2));
    return look(width, "Mean absolute cosine of every field", {
      height: usable.length * (usable.length > 30 ? 15 : 26) + 68, marginLeft: left, marginRight: 40,
      x: { label: "mean |cosine|", grid: true, axis: usable.length > 30 ? "both" : "bottom", domain: [0, Math.max(0.1, d3.max(dots, (dot) => dot.value))], nice: true, ticks: 5 },
      y: { domain: usable, label: null, tickSize: 0, tickFormat: (j) => names[j] },
      marks: [
        Plot.ruleY(usable, { stroke: "var(--line)" }),
        Plot.dot(dots, { x: "value", y: "j", r: 5, fill: (dot) => tones[dot.place], stroke: (dot) => (dot.j === chosen ? "currentColor" : "none"), strokeWidth: 2,
          title: (dot) => `${data.fields[dot.j].name}: ${dot.value.toFixed(2)} ${panels[dot.place].label}` }),
      ],
    });
  }));
}
