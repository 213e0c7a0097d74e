"use strict";
/* Shared by both pages: elements, figures that redraw to fit their width, sortable tables, colors. */

const data = JSON.parse(document.getElementById("data").textContent);
const main = document.getElementById("main");
const redraws = new Set();

/** Creates an element; text is always set as text, never as markup. */
function el(tag, attributes = {}, ...children) {
  const node = document.createElement(tag);
  for (const [key, value] of Object.entries(attributes)) {
    if (key.startsWith("on")) node.addEventListener(key.slice(2), value);
    else if (value !== undefined && value !== null && value !== false) node.setAttribute(key, value === true ? "" : value);
  }
  node.append(...children.flat().filter((child) => child !== null && child !== undefined));
  return node;
}

const number = (value) => (value === null || value === undefined ? "–" : Math.round(value).toLocaleString("en"));
const auc = (value) => value.toFixed(4);
const seconds = (value) => (value < 1 ? value.toFixed(2) : value < 100 ? value.toFixed(1) : Math.round(value).toLocaleString("en")) + " s";
const bytes = (value) => {
  const units = ["bytes", "KiB", "MiB", "GiB", "TiB"];
  let place = 0;
  while (value >= 1024 && place < units.length - 1) { value /= 1024; place += 1; }
  return (place === 0 || value >= 100 ? Math.round(value) : value.toFixed(1)) + " " + units[place];
};
/* shortens long names in the middle, because they often differ at the end */
const short = (text, length = 26) => (text.length > length ? text.slice(0, Math.ceil(length * 0.55) - 1) + "…" + text.slice(text.length - Math.floor(length * 0.45)) : text);
/** Shortens names to at most this length so that they stay different: equal results get their number. */
function shorts(names, length) {
  const found = names.map((name) => short(name, length)), count = d3.rollup(found, (same) => same.length, (text) => text);
  return found.map((text, place) => {
    if (count.get(text) === 1) return text;
    const number = "#" + (place + 1);
    return short(names[place], Math.max(3, length - number.length - 1)) + " " + number;
  });
}
/** A value with its interval, if it has one. */
const withInterval = (one, sign = "") => {
  const show = (value) => (sign && value >= 0 ? "+" : value < 0 ? "−" : "") + Math.abs(value).toFixed(4);
  return one.low === null ? show(one.value) : `${show(one.value)} (${show(one.low)} to ${show(one.high)})`;
};
const whole = (first, last, count = 8) => d3.ticks(first, last, Math.max(1, Math.min(count, last - first))).filter(Number.isInteger);
/** Ticks of a logarithmic axis that do not overlap: 1, 2 and 5 of each decade, or all if those are too few. */
const decades = (values) => {
  const all = d3.scaleLog().domain(d3.extent(values)).ticks();
  const few = all.filter((value) => [1, 2, 5].includes(Math.round(value / 10 ** Math.floor(Math.log10(value) + 1e-9))));
  return few.length > 1 ? few : all.length < 6 ? all : all.filter((_, place) => place % 3 === 0);
};
/** A number format with enough digits to distinguish these values. */
const fine = (values, least = 3) => {
  const span = d3.max(values) - d3.min(values);
  return `.${span > 0 ? Math.min(8, Math.max(least, Math.ceil(-Math.log10(span)) + 1)) : least}~f`;
};
const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
const unique = (values) => [...new Set(values)];
const mean = (values) => d3.mean(values);

/** Adds a section with a heading, listed in the contents. */
function section(id, title, ...children) {
  const node = el("section", { id, "aria-labeledby": id + "-title" }, el("h2", { id: id + "-title" }, title), ...children);
  main.append(node);
  document.getElementById("contents").append(el("a", { href: "#" + id }, title));
  return node;
}

/** Creates the mark of a legend entry: the chart's symbol, or a patch of color. */
function key(color, symbol) {
  if (!symbol) return el("i", { style: `background:${color}` });
  const svg = d3.create("svg").attr("width", 17).attr("height", 13).attr("viewBox", "-7 -6.5 17 13").attr("aria-hidden", "true");
  svg.append("path").attr("d", d3.symbol(symbol, 70)()).attr("fill", color);
  return svg.node();
}

/** Adds a figure; `draw` gets the available width and returns the chart. Returns a function that redraws it. */
function figure(parent, { id, title, note, legend, tall = false }, draw) {
  const plot = el("div", { class: tall ? "plot tall" : "plot", tabindex: tall ? "0" : null });
  const caption = el("figcaption", {}, note ?? "");
  const keys = el("ul", { class: "legend" }, (legend ?? []).map(([name, color, symbol]) => el("li", {}, key(color, symbol), name)));
  const box = el("figure", { id, "data-chart": id }, el("h3", {}, title), caption, legend ? keys : null, plot);
  parent.append(box);
  let width = 0;
  const redraw = () => {
    width = Math.max(240, Math.floor(plot.clientWidth) || 240);
    const drawn = draw(width, caption, plot);
    if (drawn) plot.replaceChildren(drawn);
  };
  redraws.add(redraw);
  new ResizeObserver(() => { if (Math.abs(plot.clientWidth - width) > 4) redraw(); }).observe(plot);
  redraw();
  return redraw;
}

/** Draws a chart with the options that all charts share. */
function look(width, title, options) {
  return Plot.plot({
    width, marginTop: options.y?.label || options.x?.axis === "both" ? 26 : 8, marginRight: 16, marginBottom: 48, ariaLabel: title,
    style: { background: "transparent", color: "inherit", fontSize: "12px", fontFamily: "inherit" },
    ...options, x: { labelOffset: 40, ...options.x },
  });
}

/** Adds a labeled select; `change` is called with the chosen value. */
function choice(parent, { id, label }, options, change) {
  const select = el("select", { id, onchange: () => change(select.value) }, options.map(([value, text]) => el("option", { value }, text)));
  parent.append(el("label", {}, label, select));
  return select;
}

/** Adds a table that sorts by a click on a head; a column is {head, value, show, text}. */
function table(parent, columns, rows, { caption, sort = null, mark = () => "" } = {}) {
  let order = sort ?? { column: -1, down: true };
  const body = el("tbody");
  const heads = columns.map((column, place) =>
    el("th", { scope: "col", class: column.text ? "text" : null },
      el("button", { type: "button", onclick: () => {
        order = { column: place, down: order.column === place ? !order.down : !column.text };
        fill();
      } }, column.head)));
  function fill() {
    const sorted = [...rows];
    if (order.column >= 0) {
      const { value } = columns[order.column];
      sorted.sort((a, b) => (order.down ? d3.descending(value(a), value(b)) : d3.ascending(value(a), value(b))));
    }
    heads.forEach((head, place) => {
      if (place === order.column) head.setAttribute("aria-sort", order.down ? "descending" : "ascending");
      else head.removeAttribute("aria-sort");
    });
    body.replaceChildren(...sorted.map((row) => el("tr", { class: mark(row) || null }, columns.map((column) => {
      const shown = String((column.show ?? column.value)(row));
      return el("td", { class: column.text ? (shown.length > 24 ? "text name" : "text") : null }, shown);
    }))));
  }
  const node = el("table", { "aria-label": caption }, el("thead", {}, el("tr", {}, heads)), body);
  parent.append(el("div", { class: "scroll", tabindex: "0" }, node));
  fill();
  return (changed) => { rows = changed; fill(); };
}

/** Sets up the theme button: system, light, dark. All charts are redrawn, since some read colors. */
function themes() {
  const button = document.getElementById("theme");
  const names = { "": "system", light: "light", dark: "dark" };
  const set = (theme) => {
    if (theme) document.documentElement.dataset.theme = theme;
    else delete document.documentElement.dataset.theme;
    button.textContent = "Theme: " + names[theme];
    redraws.forEach((redraw) => redraw());
  };
  button.addEventListener("click", () => {
    const all = Object.keys(names);
    set(all[(all.indexOf(document.documentElement.dataset.theme ?? "") + 1) % all.length]);
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => redraws.forEach((redraw) => redraw()));
  let before = "";
  addEventListener("beforeprint", () => { before = document.documentElement.dataset.theme ?? ""; set("light"); });
  addEventListener("afterprint", () => set(before));
}

/** Adds the headline, and a list of what is missing. */
function opening(kind) {
  document.getElementById("kind").textContent = kind;
  document.getElementById("made").textContent = "Made by " + data.made + ". This file is self-contained and needs no network.";
  main.append(el("p", { class: "headline", id: "headline" }, data.headline));
  if (data.warnings?.length) main.append(el("div", { class: "notices", id: "warnings", role: "alert" }, data.warnings.length > 1 ? "Warnings:" : "Warning:", el("ul", {}, data.warnings.map((line) => el("li", {}, line)))));
  if (data.harms?.length) main.append(el("div", { class: "notices", id: "harms", role: "status" }, "Fields suspected of harm:", el("ul", {}, data.harms.map((line) => el("li", {}, line)))));
  if (data.notices.length) {
    const list = el("ul", {}, data.notices.map((line) => el("li", {}, line)));
    const many = data.notices.length > 8;
    main.append(el("div", { class: "notices", id: "notices", role: "status" }, many
      ? el("details", {}, el("summary", {}, `Incomplete: ${data.notices.length} items are missing.`), list) : ["Incomplete:", list]));
  }
}

/** Formats tables of settings as TOML-like text. */
function settingsText(tables) {
  const lines = [];
  const walk = (path, values) => {
    const inner = Object.entries(values).filter(([, value]) => value !== null && typeof value === "object" && !Array.isArray(value));
    const plain = Object.entries(values).filter(([key]) => !inner.some(([other]) => other === key));
    if (plain.length) {
      if (path) lines.push("", `[${path}]`);
      plain.forEach(([key, value]) => lines.push(`${key} = ${JSON.stringify(value)}`));
    }
    inner.forEach(([key, value]) => walk(path ? path + "." + key : key, value));
  };
  walk("", tables);
  return lines.join("\n").trim();
}
