"use strict";
// Draws the charts. The rest of the page needs no script. Only numbers are drawn, so no text of the log is handled here.

const charts = JSON.parse(document.getElementById("charts").textContent);
const root = document.documentElement;
root.dataset.script = "on";

const whole = new Intl.NumberFormat("en-GB");
const colour = (name) => getComputedStyle(root).getPropertyValue("--" + name).trim();
const two = (n) => String(n).padStart(2, "0");
const hand = uPlot.sync("time");

// clock formats a time of the log, in UTC as in the tables.
function clock(at, step) {
  const d = new Date(at * 1000);
  const day = `${d.getUTCFullYear()}-${two(d.getUTCMonth() + 1)}-${two(d.getUTCDate())}`;
  return step >= 86400 ? day : `${day} ${two(d.getUTCHours())}:${two(d.getUTCMinutes())}:${two(d.getUTCSeconds())}`;
}

function lasting(s) {
  for (const [unit, length] of [["d", 86400], ["h", 3600], ["min", 60]]) if (s >= length && s % length === 0) return `${s / length} ${unit}`;
  return `${s} s`;
}

// tick formats a time on an axis, as short as the distance to the next one allows.
function tick(at, apart) {
  const d = new Date(at * 1000), midnight = at % 86400 === 0;
  if (apart >= 86400 || midnight) return `${d.getUTCDate()} ${["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"][d.getUTCMonth()]}`;
  return `${two(d.getUTCHours())}:${two(d.getUTCMinutes())}` + (apart < 60 ? ":" + two(d.getUTCSeconds()) : "");
}

// short formats a number for an axis.
function short(n) {
  for (const [size, unit] of [[1e9, "G"], [1e6, "M"], [1e3, "k"]]) if (n >= size) return `${+(n / size).toFixed(1)}${unit}`;
  return String(n);
}

// A Chart is two plots, one below the other: requests, and refusals on their own scale.
class Chart {
  constructor(place, data) {
    this.place = place;
    this.data = data;
    this.length = data.refused.length;
    this.requests = data.requests ?? null;
    this.refusals = data.refused.reduce((a, b) => a + b, 0);
    place.tabIndex = 0;
    place.setAttribute("role", "group");
    place.setAttribute("aria-roledescription", "chart");
    place.setAttribute("aria-label", this.label());
    this.said = document.createElement("output");
    this.plots = [];
    const range = [data.start, data.start + data.step * Math.max(this.length, 1)];
    const times = [], ends = (list) => list.length ? [...list, list.at(-1)] : [0]; // a step needs an end
    for (let i = 0; i <= this.length; i++) times.push(data.start + i * data.step);
    if (this.requests) {
      const admitted = this.requests.map((n, i) => n - data.refused[i]);
      this.plot([times, ends(this.requests), ends(admitted)], ["refused", "admitted"], range, 120, data.top);
    }
    if (this.refusals > 0) {
      const most = Math.max(...data.refused);
      this.plot([times, ends(data.refused)], ["refused"], range, this.requests ? 72 : 110, most);
    }
    place.append(this.said);
    this.note(null);
    place.addEventListener("keydown", (e) => this.key(e));
  }

  label() {
    const all = this.requests ? this.requests.reduce((a, b) => a + b, 0) : 0;
    let most = 0;
    this.data.refused.forEach((n, i) => { if (n > this.data.refused[most]) most = i; });
    return (this.requests ? `${whole.format(all)} requests, ` : "") + `${whole.format(this.refusals)} refused` +
      (this.refusals > 0 ? `, most of them at ${clock(this.data.start + most * this.data.step, this.data.step)}` : "");
  }

  plot(values, names, range, height, top) {
    const steps = uPlot.paths.stepped({ align: 1 });
    const axis = { stroke: () => colour("muted"), font: "11px system-ui, sans-serif", ticks: { show: false }, grid: { stroke: () => colour("line"), width: 1 } };
    const div = document.createElement("div");
    this.place.append(div);
    const plot = new uPlot({
      width: this.width(), height, padding: [6, 18, 0, 0], legend: { show: false },
      tzDate: (at) => uPlot.tzDate(new Date(at * 1000), "Etc/UTC"),
      cursor: { y: false, drag: { x: false, y: false }, points: { show: false }, sync: { key: hand.key, setSeries: false } },
      hooks: { setCursor: [(u) => this.note(u.cursor.idx)] },
      scales: { x: { time: true, range: () => range }, y: { range: () => [0, Math.max(1, top * 1.05)] } },
      axes: [
        { ...axis, size: 20, gap: 3, space: 70, grid: { show: false }, values: (u, ticks, i, space, apart) => ticks.map((t) => tick(t, apart)) },
        { ...axis, size: 46, gap: 4, space: height < 100 ? 14 : 26, values: (u, ticks) => ticks.map((n) => Number.isInteger(n) ? short(n) : "") },
      ],
      series: [{}, ...names.map((name) => ({ fill: () => colour(name), width: 0, paths: steps, points: { show: false } }))],
    }, values, div);
    this.plots.push(plot);
  }

  width() { return Math.max(this.place.clientWidth, 120); }

  fit() {
    for (const plot of this.plots) if (plot.width !== this.width()) plot.setSize({ width: this.width(), height: plot.height });
  }

  // note describes what is under the pointer.
  note(i) {
    this.at = i ?? null;
    const { start, step, refused } = this.data;
    if (this.at === null || this.at >= this.length) {
      this.said.textContent = this.length > 0 ? `a step is ${lasting(step)}` : "nothing to draw";
      return;
    }
    this.said.textContent = `${clock(start + i * step, step)}, ${lasting(step)}: ` +
      (this.requests ? `${whole.format(this.requests[i])} requests, ` : "") + `${whole.format(refused[i])} refused`;
  }

  key(e) {
    const far = Math.max(1, Math.round(this.length / 20)), last = this.length - 1;
    const to = { ArrowLeft: (this.at ?? 1) - 1, ArrowRight: (this.at ?? -1) + 1, PageUp: (this.at ?? 0) - far, PageDown: (this.at ?? 0) + far, Home: 0, End: last }[e.key];
    if (to === undefined || this.plots.length === 0) return;
    e.preventDefault();
    const plot = this.plots[0], i = Math.min(Math.max(to, 0), last);
    plot.setCursor({ left: plot.valToPos(this.data.start + i * this.data.step, "x"), top: 1 });
    this.note(i);
  }
}

const drawn = [];
function draw(place) {
  if (place.clientWidth > 0 && !place.firstChild) drawn.push(new Chart(place, charts[Number(place.dataset.chart)]));
}
const redraw = () => { for (const chart of drawn) for (const plot of chart.plots) plot.redraw(false, true); };

for (const place of document.querySelectorAll(".chart")) draw(place);
addEventListener("resize", () => { for (const chart of drawn) chart.fit(); });
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);

// Print in light colours, narrow, and with all details open.
const paper = 640;
addEventListener("beforeprint", () => {
  root.dataset.print = "on";
  for (const d of document.querySelectorAll("details")) d.open = true;
  for (const chart of drawn) for (const plot of chart.plots) plot.setSize({ width: Math.min(plot.width, paper), height: plot.height });
  redraw();
});
addEventListener("afterprint", () => {
  delete root.dataset.print;
  for (const chart of drawn) chart.fit();
  redraw();
});
