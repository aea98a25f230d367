// Text from outside enters the page by textContent alone.
"use strict";
const $ = (id) => document.getElementById(id);
// The palette of Okabe and Ito, lighter on a dark page.
const COLORS = matchMedia("(prefers-color-scheme: dark)").matches
  ? ["#5cb3e8", "#ff8f4d", "#3fcf9f", "#e6a3c8", "#f0b840", "#9fd6f5", "#b79bd6", "#c9c94a"]
  : ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#7a5195", "#8c8c00"];

for (const button of document.querySelectorAll("[data-send]"))
  button.onclick = () => $(button.dataset.send).submit();
for (const input of document.querySelectorAll("[data-sends]")) input.onchange = () => input.form.submit();

// The server refuses what is too large, but a browser that is still sending may not show its answer.
for (const form of document.querySelectorAll("[data-most]")) form.onsubmit = () => {
  const size = [...form.querySelectorAll("[type=file]")].flatMap((i) => [...i.files]).reduce((sum, file) => sum + file.size, 0);
  $("large").hidden = size <= Number(form.dataset.most);
  return $("large").hidden;
};

// ---- drag and drop: files go to the inputs that their names say
for (const form of document.querySelectorAll(".drop")) {
  const over = (on) => (event) => { event.preventDefault(); form.classList.toggle("over", on); };
  form.ondragover = over(true);
  form.ondragleave = over(false);
  form.ondrop = (event) => {
    over(false)(event);
    const kinds = [["costs", /cost/i], ["effects", /effect|qaly|outcome|daly/i], ["parameters", /param|input|draw|psa/i]];
    const files = [...event.dataTransfer.files], free = new Set(["parameters", "costs", "effects"]);
    for (const file of files) {
      let kind = files.length === 1 ? "workbook" : kinds.find(([k, words]) => words.test(file.name) && free.has(k))?.[0];
      kind ??= [...free][0];
      free.delete(kind);
      const moved = new DataTransfer();
      moved.items.add(file);
      if (kind) form.querySelector(`[name=${kind}]`).files = moved.files;
    }
  };
}

// ---- elements
function make(tag, attributes = {}, ...children) {
  const svg = ["svg", "path", "line", "rect", "circle", "text", "title", "g"].includes(tag);
  const node = svg ? document.createElementNS("http://www.w3.org/2000/svg", tag) : document.createElement(tag);
  for (const [name, value] of Object.entries(attributes))
    if (name.startsWith("on")) node[name] = value;
    else if (value !== undefined && value !== false) node.setAttribute(name, value);
  node.append(...children);
  return node;
}
const minus = (text) => text.replace("-", "−");
function number(x) {
  if (x === null || !isFinite(x)) return "–";
  const size = Math.abs(x);
  if (size >= 99.95) return minus(Math.round(x).toLocaleString("en-GB"));
  return minus(Number(x.toPrecision(3)).toLocaleString("en-GB", {maximumSignificantDigits: 3}));
}
// Digits that a 95 % half-width supports; without one, a known amount.
function rounded(x, half) {
  const size = Math.abs(x);
  if (!(half > 0) || !size) return number(size);
  const unit = 10 ** Math.floor(Math.log10(half / 2)), value = Math.round(size / unit) * unit;
  const [scale, letter] = [[1e9, "bn"], [1e6, "m"]].find(([s]) => value >= s && unit >= s / 1e3) || [1, ""];
  const digits = value ? Math.max(0, Math.round(Math.log10(scale / unit))) : 0;
  return (value / scale).toLocaleString("en-GB", {minimumFractionDigits: digits, maximumFractionDigits: digits}) + letter;
}
function money(x, half) {
  const text = rounded(x, half);
  return (x < 0 && /[1-9]/.test(text) ? "−" : "") + (state.settings.currency || "") + text;
}
const range = (low, high) => [low, high].map((x) => money(Math.abs(x) < (high - low) / 40 ? 0 : x, (high - low) / 2)).join(" to ");
function compact(x) {
  const size = Math.abs(x), unit = [[1e9, "bn"], [1e6, "m"], [1e3, "k"]].find(([u]) => size >= u);
  return minus(unit ? Number((x / unit[0]).toPrecision(3)) + unit[1] : String(Number(x.toPrecision(3))));
}
const ink = () => getComputedStyle(document.documentElement).getPropertyValue("--ink").trim();
const short = (text, most) => text.length > most ? text.slice(0, most - 1) + "…" : text;
const share = (p) => `${Math.round(100 * p)} %`;

// ---- charts
function ticks(low, high, count) {
  const raw = (high - low) / count || 1, power = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 5, 10].map((m) => m * power).find((s) => s >= raw);
  const first = Math.ceil(low / step - 1e-9), many = Math.floor(high / step + 1e-9) - first + 1;
  return Array.from({length: many}, (_, i) => (first + i) * step);
}
// Lines over x, bands, dots; `mark` is a vertical line. Labels stand at the ends of lines.
function chart(id, {x, y, lines, mark, dots = [], clouds = [], xname = "", yname = "", format = compact, yformat = compact, cut, xticks}) {
  const box = $(id), width = Math.max(box.clientWidth, 240), height = Math.min(300, 150 + width / 3);
  const names = lines.filter((l) => l.name).map((l) => short(l.name, 18));
  const right = Math.min(width * .34, 14 + 6.6 * Math.max(0, ...names.map((n) => n.length)));
  const left = 52, bottom = 38, top = yname ? 24 : 8, w = width - left - right, h = height - top - bottom;
  const px = (v) => left + w * (v - x[0]) / (x[1] - x[0] || 1), py = (v) => top + h * (1 - (v - y[0]) / (y[1] - y[0] || 1));
  const svg = make("svg", {viewBox: `0 0 ${width} ${height}`, height, role: "img", "aria-label": box.closest("figure, section")?.querySelector("h2, h3")?.textContent || id});
  for (const v of ticks(y[0], y[1], 5))
    svg.append(make("line", {x1: left, x2: left + w, y1: py(v), y2: py(v), class: v ? "grid" : "zero"}),
      make("text", {x: left - 7, y: py(v) + 4, "text-anchor": "end"}, yformat(v)));
  for (const v of xticks || ticks(x[0], x[1], Math.max(2, Math.floor(w / 75))))
    svg.append(make("text", {x: px(v), y: height - 20, "text-anchor": "middle"}, format(v)));
  svg.append(make("text", {x: left + w / 2, y: height - 3, "text-anchor": "middle"}, xname));
  if (yname) svg.append(make("text", {x: 2, y: 12}, yname));
  if (mark !== undefined) svg.append(make("line", {x1: px(mark), x2: px(mark), y1: top, y2: top + h, class: "mark"}));
  const clip = (v) => cut ? Math.min(Math.max(v, y[0]), y[1]) : v;
  const path = (xs, ys) => xs.map((v, i) => ys[i] === null ? "" : `${i && ys[i - 1] !== null ? "L" : "M"}${px(v).toFixed(1)} ${py(clip(ys[i])).toFixed(1)}`).join("");
  for (const l of lines) {
    if (l.low) svg.append(make("path", {fill: l.color, "fill-opacity": .13, d: path([...l.x, ...[...l.x].reverse()], [...l.low, ...[...l.high].reverse()]) + "Z"}));
    svg.append(make("path", {fill: "none", stroke: l.color, "stroke-width": l.wide || 2, "stroke-opacity": l.wide ? .3 : 1, "stroke-dasharray": l.dashes, d: path(l.x, l.y)}));
  }
  // A cloud is one path of points: a thousand elements would slow the slider.
  for (const c of clouds) svg.append(make("path", {d: c.points.map((p) => `M${px(p[0]).toFixed(1)} ${py(p[1]).toFixed(1)}h0`).join(""), stroke: c.color, "stroke-width": 3.4, "stroke-linecap": "round", "stroke-opacity": .35}));
  for (const d of dots) svg.append(make("circle", {cx: px(d.x), cy: py(d.y), r: 6, fill: d.color, stroke: "#fff"}));
  const ends = lines.filter((l) => l.name).map((l) => ({at: py(clip(l.y.at(-1))), l})).sort((a, b) => a.at - b.at);
  ends.forEach((e, i) => { e.at = Math.max(e.at, i ? ends[i - 1].at + 14 : top + 4); });
  for (let i = ends.length - 1, low = top + h; i >= 0; i--, low -= 14) ends[i].at = low = Math.min(ends[i].at, low);
  for (const {at, l} of ends)
    svg.append(make("text", {x: left + w + 7, y: at + 4, fill: l.color}, make("title", {}, l.name), short(l.name, 18)));
  box.replaceChildren(svg);
}
function bars(id, rows) {
  const box = $(id), width = Math.max(box.clientWidth, 240), step = 25, narrow = width < 520;
  const left = Math.min(width * .36, 20 + 6.6 * Math.max(...rows.map((r) => short(r.label, 28).length))), right = narrow ? 62 : width > 800 ? 250 : 190;
  const most = Math.max(...rows.map((r) => r.upper)) || 1, w = width - left - right, px = (v) => left + w * v / most;
  const height = rows.length * step + 24;
  const svg = make("svg", {viewBox: `0 0 ${width} ${height}`, height, role: "img", "aria-label": "EVPPI by set"});
  for (const v of ticks(0, most, Math.max(2, Math.floor(w / 90))))
    svg.append(make("line", {x1: px(v), x2: px(v), y1: 0, y2: height - 20, class: "grid"}),
      make("text", {x: px(v), y: height - 4, "text-anchor": "middle"}, compact(v)));
  rows.forEach((r, i) => {
    const y = i * step + 12, hollow = r.flags.includes("not distinguishable"), {color} = r;
    const flags = r.flags.split("; "), flag = flags.find((f) => !f.startsWith("not distinguishable")) || flags[0];
    svg.append(make("g", {},
      make("title", {}, `${r.label}: ${money(r.value, r.half)}, 95 % ${range(r.lower, r.upper)}${r.flags ? "; " + r.flags : ""}`),
      make("text", {x: left - 8, y: y + 4, "text-anchor": "end", class: "ink"}, short(r.label, narrow ? Math.floor(left / 6.8) : 28)),
      make("rect", {x: left, y: y - 7, width: Math.max(px(r.value) - left, 1), height: 14, fill: hollow ? "none" : color, stroke: color, rx: 1.5}),
      make("line", {x1: px(r.lower), x2: px(r.upper), y1: y, y2: y, class: "range"}),
      make("text", {x: width - right + 10, y: y + 4, class: "ink"}, money(r.value, r.half)),
      ...(narrow ? [] : [make("text", {x: width - right + 72, y: y + 4}, short(flag || share(r.of) + " of EVPI", width > 800 ? 30 : 20))])));
  });
  box.replaceChildren(svg);
}
function table(id, head, rows, best = -1) {
  const box = typeof id === "string" ? $(id) : id;
  box.replaceChildren(make("div", {class: "scroll"}, make("table", {class: "numbers"},
    make("thead", {}, make("tr", {}, ...head.map((cell) => make("th", {}, cell)))),
    make("tbody", {}, ...rows.map((row, i) => make("tr", {class: i === best ? "best" : ""}, ...row.map((cell, j) => make("td", {"data-name": head[j]}, cell))))))));
}

// ---- one analysis
let state = null, data = null, stamp = "", at = 0;
const picked = {group: new Set(), study: new Set()};
const extent = (values, zero = true) => {
  const low = Math.min(...values, ...(zero ? [0] : [])), high = Math.max(...values, ...(zero ? [0] : []));
  const pad = .05 * (high - low || 1);
  return [low < 0 || !zero ? low - pad : low, high + pad];
};

function redraw() {
  const now = data.seen.now, grid = now.grid, k = grid[at], results = data.results, set = state.settings;
  const best = now.net[at].indexOf(Math.max(...now.net[at])), evpi = now.evpi.value[at];
  const sets = (results ? results.sets : []).filter((s) => !s.group || s.label in set.groups);
  // The same sets and colors wherever the slider is.
  const peak = (s) => Math.max(...s.value), shown = [...sets].filter((s) => peak(s) > 0).sort((a, b) => peak(b) - peak(a)).slice(0, 5);
  const hue = (s) => shown.includes(s) ? COLORS[shown.indexOf(s)] : "#8a97a0";
  const rows = sets.map((s) => ({label: s.label, color: hue(s), group: s.group, value: s.value[at], lower: s.lower[at], upper: s.upper[at], half: (s.upper[at] - s.lower[at]) / 2, flags: s.flags[at], of: evpi > 0 ? s.value[at] / evpi : 0}))
    .sort((a, b) => b.value - a.value);
  $("at").textContent = `${money(k)} per ${set.effect.replace(/s$/, "")}`;
  const card = (head, value, note) => make("div", {class: "card"}, make("span", {}, head), make("b", {class: value.length > 12 ? "long" : ""}, value), make("span", {}, note));
  const found = rows.find((r) => !r.group && !r.flags.includes("not distinguishable"));
  const half = (now.evpi.upper[at] - now.evpi.lower[at]) / 2;
  const cards = [card("EVPI per person", money(evpi, half), `95 % ${range(now.evpi.lower[at], now.evpi.upper[at])}`),
    card("Best on current information", now.options[best], `the best in ${share(now.probability[at][best])} of ${now.rows.toLocaleString("en-GB")} draws`)];
  if (results?.people) cards.push(card("EVPI for the population", money(evpi * results.people, half * results.people),
    k > 0 ? `or ${rounded(evpi * results.people / k, half * results.people / k)} ${set.effect}` : ""));
  if (results) cards.push(found ? card("Most worth knowing", found.label, `${money(found.value, found.half)}, ${share(found.of)} of EVPI`) : card("Most worth knowing", "–", "no parameter by itself"));
  $("cards").replaceChildren(...cards);
  if (rows.length) bars("rank", rows.slice(0, 20)); else $("rank").replaceChildren(make("p", {class: "quiet"}, state.job ? "EVPPI is being computed." : "EVPPI is not computed for this range."));
  const wtp = {x: [grid[0], grid.at(-1)], mark: k, xname: "willingness to pay"};
  chart("curves", {...wtp, yname: "value per person", y: [0, 1.05 * (Math.max(...now.evpi.upper) || 1)], cut: true, lines: [
    {x: grid, y: now.evpi.value, low: now.evpi.lower, high: now.evpi.upper, color: ink(), name: "EVPI"},
    ...shown.map((s, i) => ({x: grid, y: s.value, low: s.lower, high: s.upper, color: COLORS[i], name: s.label}))]});
  // Of many options those that are best in the middle of the slider have names and colors.
  const middle = now.net[Math.floor(grid.length / 2)], leading = [...middle.keys()].sort((a, b) => middle[b] - middle[a]).slice(0, COLORS.length);
  const look = (d) => leading.includes(d) ? {color: COLORS[now.options.length > COLORS.length ? leading.indexOf(d) : d], name: now.options[d]} : {color: "#c4ccd2"};
  const tops = now.net.map((row) => row.indexOf(Math.max(...row)));
  chart("ceac", {...wtp, y: [0, 1], yformat: share, lines: now.options.flatMap((_, d) => {
    const y = now.probability.map((row) => row[d]);
    return [{x: grid, y: y.map((v, i) => tops[i] === d ? v : null), color: look(d).color, wide: 8}, {x: grid, y, ...look(d)}];
  })});
  const others = now.plane.slice(1), flat = others.flat(), xs = extent(flat.map((p) => p[0])), ys = extent(flat.map((p) => p[1]));
  const line = [Math.max(xs[0], k ? ys[0] / k : xs[0]), Math.min(xs[1], k ? ys[1] / k : xs[1])];
  chart("plane", {x: xs, y: ys, xname: `incremental ${set.effect}`, yname: `incremental cost, ${set.currency}`, format: number, lines: [
    {x: line, y: line.map((v) => k * v), color: ink(), dashes: "5 4"},
    ...others.map((_, i) => ({x: [xs[1]], y: [now.cost[i + 1] - now.cost[0]], ...look(i + 1)}))],
  clouds: others.map((points, i) => ({points, color: look(i + 1).color})),
  dots: others.map((_, i) => ({x: now.effect[i + 1] - now.effect[0], y: now.cost[i + 1] - now.cost[0], color: look(i + 1).color}))});
  const gains = [null, ...now.gain[at]];
  table("options", ["option", "cost", set.effect, "net benefit", "incremental", "best"], now.options.map((name, d) => [name, money(now.cost[d]), number(now.effect[d]), money(now.net[at][d]),
    gains[d] ? make("span", {}, money(gains[d][0], (gains[d][2] - gains[d][1]) / 2), make("small", {}, range(gains[d][1], gains[d][2]))) : "–", share(now.probability[at][d])]), best);
  drawStudies(results?.studies || []);
  drawConvergence(results?.convergence || []);
  drawParts(results?.scenarios || [], results?.subgroups || []);
  $("files-at").textContent = results || !state.job ? `Files are made at ${money(k)} per ${set.effect.replace(/s$/, "")}, where the slider is, and say so on their first line.` : "";
}
function drawConvergence(all) {
  const table = all.map((r) => ({pars: r.pars, n: r.n, value: r.value[at], lower: r.lower[at], upper: r.upper[at], needed: r.needed[at]}));
  const n = [...new Set(table.map((r) => r.n))].sort((a, b) => a - b), names = [...new Set(table.map((r) => r.pars))];
  $("enough").hidden = n.length < 2;
  if (n.length < 2) return;
  const log = n.map(Math.log2), last = table.filter((r) => r.n === n.at(-1)), most = last.reduce((a, b) => (b.needed > a.needed ? b : a));
  chart("convergence", {x: [log[0], log.at(-1)], y: [0, 1.05 * (Math.max(...table.map((r) => r.upper)) || 1)], xname: "draws (log scale)", yname: "value per person", xticks: log, format: (v) => number(Math.round(2 ** v)),
    lines: names.map((name, i) => {
      const rows = table.filter((r) => r.pars === name).sort((a, b) => a.n - b.n);
      return {x: log, y: rows.map((r) => r.value), low: rows.map((r) => r.lower), high: rows.map((r) => r.upper), color: i ? COLORS[i - 1] : ink(), name};
    })});
  $("enough").querySelector("figcaption").textContent = "From the first draws alone; bands: 95 %. " + (!last[0].value ? `No draw favors another option: EVPI is at most ${money(last[0].upper, last[0].upper)}.` : most.needed <= most.n
    ? `${number(most.n)} draws are enough: half-widths are below 5 % of EVPI.`
    : `More draws would help: ${most.pars} needs about ${Number(most.needed.toPrecision(2)).toLocaleString("en-GB")} for a half-width of 5 % of EVPI.`);
}
function drawParts(scenarios, subgroups) {
  const cell = (r) => r ? make("span", {}, money(r.value[at], (r.upper[at] - r.lower[at]) / 2), make("small", {}, range(r.lower[at], r.upper[at]))) : "–";
  const [decisions, sets] = ["decision", "pars"].map((key) => [...new Set(subgroups.map((r) => r[key]))]);
  $("scenarios").replaceChildren();
  $("subgroups").replaceChildren();
  if (scenarios.length) table("scenarios", ["structure", "value per person"], [["knowing which scenario holds", cell(scenarios[0])]]);
  if (subgroups.length) table("subgroups", ["knowing", ...decisions], sets.map((name) => [name, ...decisions.map((d) => cell(subgroups.find((r) => r.pars === name && r.decision === d)))]));
}
function drawStudies(studies) {
  const given = state.settings.studies;
  $("studied").replaceChildren(...studies.filter((_, i) => i < given.length).map((study, number_) => {
    const sizes = study.sizes, best = study.best[at], n = sizes.map((s) => s.n), top = n.indexOf(best.n), values = sizes.map((s) => s.enbs[at]);
    const half = (best.enbs_upper - best.enbs_lower) / 2;
    const near = best.near_to > best.near_from ? ` Sizes from ${number(best.near_from)} to ${number(best.near_to)} come within 5 % of it.` : "";
    const said = (top < 0 ? "" : `The best size is ${number(best.n)} in each arm, with an expected net benefit of ${money(best.enbs, half)} (95 % ${range(best.enbs_lower, best.enbs_upper)}).${near} `)
      + (best.notes ? `Note: ${best.notes}.` : "");
    const draw = make("div", {id: `enbs-${number_}`}), rows = make("div");
    const part = make("section", {class: "one-study"}, make("h3", {}, study.design[0].toUpperCase() + study.design.slice(1), " ",
      make("button", {type: "button", class: "plain", onclick: () => post("settings", {remove_study: number_})}, "Remove")), make("p", {class: "said"}, said), draw, rows);
    requestAnimationFrame(() => draw.isConnected && chart(draw.id, {x: [Math.min(0, n[0]), n.at(-1)], y: extent(sizes.flatMap((s) => [s.enbs_lower[at], s.enbs_upper[at]])), xname: "participants in each arm", yname: "expected net benefit of sampling", format: number,
      lines: [{x: n, y: values, low: sizes.map((s) => s.enbs_lower[at]), high: sizes.map((s) => s.enbs_upper[at]), color: COLORS[0], name: "ENBS"}],
      dots: top >= 0 ? [{x: n[top], y: values[top], color: COLORS[1]}] : []}));
    table(rows, ["in each arm", "EVSI per person", "95 %", "years", "cost", "ENBS"], sizes.map((s) => [number(s.n), money(s.evsi.value[at], (s.evsi.upper[at] - s.evsi.lower[at]) / 2), range(s.evsi.lower[at], s.evsi.upper[at]), number(s.years), money(s.cost),
      money(s.enbs[at], (s.enbs_upper[at] - s.enbs_lower[at]) / 2)]), top);
    return part;
  }));
}

const REMOVED = "This analysis was removed, perhaps in another tab.";
function lost(problem) {
  show({...state, job: null, error: problem.message === REMOVED ? REMOVED : `No answer from nestquad: is it still running? (${problem.message})`});
}
let refused = ""; // what was refused stays until something else is asked, whatever runs meanwhile
async function post(path, body) {
  let answer, content;
  const form = body instanceof FormData;
  try {
    answer = await fetch(path, {method: "POST", body: form ? body : JSON.stringify(body || {}), headers: form ? {} : {"content-type": "application/json"}});
    if (answer.status === 404) throw new Error(REMOVED);
    content = await answer.json();
  } catch (problem) { return lost(problem); }
  refused = answer.ok ? "" : content.error;
  if (refused) { unread = false; return show(state); } // nothing is read again
  show(content);
  poll();
}
let waiting = null, unread = false; // whether the page was made before the tables were read
async function poll() {
  clearTimeout(waiting);
  try {
    const answer = await fetch("state");
    if (!answer.ok) throw new Error(REMOVED);
    const fresh = await answer.json();
    if (!fresh.stamp[0] && fresh.job) { show(fresh); waiting = setTimeout(poll, 300); unread = true; return; }
    if (unread) return location.reload();
    if (!fresh.stamp[0]) return;
    const changed = String(fresh.stamp) !== stamp;
    if (changed) { data = await (await fetch("data")).json(); stamp = String(fresh.stamp); }
    if (changed && data.seen.now) arrange(fresh);
    show(fresh);
    if (changed && data.seen.now) redraw();
    // Another tab may change the analysis; a hidden one asks when it is shown again.
    if (!document.hidden) waiting = setTimeout(poll, fresh.job ? 400 : 3000);
  } catch (problem) { lost(problem); }
}
document.addEventListener("visibilitychange", () => { if (!document.hidden && $("app")) poll(); });
// An error stands beside what was used last.
let asked = null, idle = null, dismissed = ""; // an old error says nothing about what is asked now
for (const kind of ["click", "focusin"])
  document.addEventListener(kind, (event) => { asked = event.target.closest("#app button, #app input") || asked; });
function complain(words) {
  const box = $("error"), fresh = words && box.textContent !== words;
  box.hidden = !words;
  box.textContent = words;
  if (!fresh) return;
  if (asked && !asked.closest("[hidden]")) (asked.closest(".fields, .row, .chips, li") || asked).after(box);
  box.scrollIntoView({block: "nearest"});
}
function show(fresh) {
  state = fresh;
  const job = state.job;
  $("job").hidden = !job;
  if (job) {
    $("job").querySelector("b").textContent = job.what;
    $("job").querySelector("span").textContent = `${job.message} ${job.total > 1 ? `(${job.done} of ${job.total})` : ""} · ${Math.round(job.seconds)} s`;
    const bar = $("job").querySelector("progress");
    if (job.total > 1) { bar.max = job.total; bar.value = job.done; } else bar.removeAttribute("value");
  }
  $("stopped").hidden = Boolean(job || (state.stamp[0] && (state.stamp[1] || !data?.seen.now)));
  $("stopped").querySelector("span").textContent = `EVPPI at ${money(state.settings.wtp)}`;
  if (data?.seen.now && !data.results && idle !== !job) { idle = !job; redraw(); }
  if (job) dismissed = "";
  complain(refused || (state.error !== dismissed && state.error) || "");
  const names = Object.entries(state.files), report = $("report");
  if ($("files").dataset.names !== String(names)) {
    $("files").dataset.names = String(names);
    $("files").replaceChildren(...names.map(([name, word]) => make("button", {type: "button", "data-file": name, onclick: (event) => save(event.target, name, word)}, word)));
  }
  $("show-report").hidden = !("report.html" in state.files);
  if ($("show-report").hidden) report.hidden = true;
  if ($("parts-listed")) $("parts-listed").replaceChildren(...state.settings.parts.map((part) =>
    make("li", {}, make("span", {}, make("b", {}, part.name), " ", make("small", {}, `${part.kind}, ${part.share}: ${part.files.join(", ")}`)),
      make("button", {type: "button", class: "plain", onclick: () => post("settings", {remove_part: part.code})}, "Remove"))));
  if ($("listed")) $("listed").replaceChildren(...Object.entries(state.settings.groups).map(([label, members]) =>
    make("li", {}, make("span", {}, make("b", {}, label), " ", make("small", {}, members.join(", "))),
      make("button", {type: "button", class: "plain", onclick: () => {
        post("settings", {groups: {[label]: null}});
      }}, "Remove"))));
}
// A file is made when it is asked for, at the position of the slider.
const address = (name) => `files/${name}?wtp=${data?.seen.now ? data.seen.now.grid[at] : ""}`;
async function save(button, name, word) {
  button.disabled = true;
  button.textContent = `Writing ${word} …`;
  refused = "";
  try {
    const answer = await fetch(`${address(name)}&download`);
    if (!answer.ok) throw new Error(new DOMParser().parseFromString(await answer.text(), "text/html").body.textContent);
    const named = /filename\*?="?(?:utf-8'')?([^";]+)/.exec(answer.headers.get("content-disposition") || "");
    const link = make("a", {href: URL.createObjectURL(await answer.blob()), download: named ? decodeURIComponent(named[1]) : name});
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 10000);
  } catch (problem) { refused = problem.message; }
  button.disabled = false;
  button.textContent = word;
  show(state);
}
// Once for each range of the slider.
let arranged = "";
function arrange(fresh) {
  const grid = data.seen.now.grid, set = fresh.settings;
  state = fresh;
  $("app").hidden = false;
  if (arranged === String(grid)) return;
  arranged = String(grid);
  at = grid.indexOf(set.wtp);
  Object.assign($("wtp"), {max: grid.length - 1, value: at});
  $("least").textContent = money(grid[0]);
  $("most").textContent = money(grid.at(-1));
  for (const box of document.querySelectorAll("[data-chips]")) {
    const chosen = picked[box.dataset.chips];
    box.replaceChildren(...data.seen.parameters.map((name) => make("button", {
      type: "button", "aria-pressed": String(chosen.has(name)), onclick: (event) => {
        if (!chosen.delete(name)) chosen.add(name);
        event.target.setAttribute("aria-pressed", String(chosen.has(name)));
      }}, name)));
  }
  for (const input of document.querySelectorAll("[data-set]")) input.value = [].concat(set[input.dataset.set] ?? []).join(" ");
  detail();
}
function detail() {
  const words = {normal: "Standard deviation (number or parameter)", count: "Observation time of each", survival: "Follow-up of each"};
  const word = words[document.querySelector("[data-study=kind]").value];
  $("detail").hidden = !word;
  $("detail").querySelector("span").textContent = word || "";
}
const population = () => Object.fromEntries([...document.querySelectorAll("[data-set]")].map((i) => [i.dataset.set, i.value]));

if ($("app")) {
  let frame = 0;
  const gone = () => { refused = ""; dismissed = state.error || dismissed; complain(""); };
  $("wtp").oninput = () => { gone(); at = Number($("wtp").value); cancelAnimationFrame(frame); frame = requestAnimationFrame(redraw); };
  window.onresize = () => { if (data?.seen.now) { cancelAnimationFrame(frame); frame = requestAnimationFrame(redraw); } };
  $("cancel").onclick = () => post("cancel");
  $("compute").onclick = () => { unread = !state.stamp[0]; post("settings"); };
  $("add").onclick = () => {
    const members = [...picked.group];
    if (members.length < 2) { refused = "A group has two parameters or more: click them first."; return show(state); }
    post("settings", {groups: {[$("label").value.trim() || members.join(" + ")]: members}});
    picked.group.clear();
    $("label").value = "";
    for (const chip of document.querySelectorAll("[data-chips=group] button")) chip.setAttribute("aria-pressed", "false");
  };
  $("part").onsubmit = (event) => event.preventDefault();
  $("add-part").onclick = async () => {
    await post("parts", new FormData($("part")));
    if (!refused) $("part").reset();
  };
  $("count").onclick = () => post("settings", population());
  $("value").onclick = () => {
    const fields = [...document.querySelectorAll("[data-study]")].map((i) => [i.dataset.study, i.value]);
    post("settings", {...population(), study: {...Object.fromEntries(fields), pars: [...picked.study]}});
  };
  $("show-report").onclick = () => {
    const report = $("report"), source = address("report.html");
    report.hidden = false;
    $("show-report").textContent = `Show the report at ${money(data.seen.now.grid[at])}`;
    if (report.getAttribute("src") !== source) report.src = source;
    report.scrollIntoView({block: "nearest"});
  };
  document.querySelector("[data-study=kind]").onchange = detail;
  $("exact").onchange = () => {
    gone();
    const place = data.seen.now.grid.indexOf(Number($("exact").value));
    if (place < 0) { unread = true; return post("settings", {wtp: $("exact").value}); }
    $("wtp").value = place;
    $("wtp").oninput();
  };
  for (const button of document.querySelectorAll("[data-answer]")) button.onclick = () => {
    unread = true;
    post("settings", {[button.dataset.answer]: true});
  };
  for (const button of document.querySelectorAll("[data-role]")) button.onclick = () => {
    for (const other of button.parentNode.querySelectorAll("[data-role]")) other.setAttribute("aria-pressed", String(other === button));
    button.parentNode.querySelector("input").hidden = !["cost", "effect"].includes(button.dataset.role);
  };
  if ($("picked")) $("picked").onclick = () => {
    const roles = [...document.querySelectorAll("[data-column]")].map((row) => {
      const role = row.querySelector("[aria-pressed=true]").dataset.role;
      return [row.dataset.column, ["cost", "effect"].includes(role) ? `${role} of ${row.querySelector("input").value.trim()}` : role];
    });
    unread = true;
    post("settings", {columns: Object.fromEntries(roles)});
  };
  if ($("sheeted")) $("sheeted").onclick = () => {
    unread = true;
    post("settings", {sheets: [...document.querySelectorAll("[data-sheet]")].map((s) => s.value).filter(Boolean)});
  };
  if ($("matched")) $("matched").onclick = () => {
    unread = true;
    post("settings", {match: [...document.querySelectorAll("[data-match]")].map((s) => s.value)});
  };
  poll();
}
