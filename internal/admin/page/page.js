"use strict";

// The operator's dashboard. From top to bottom: texts and numbers, the token, the admin API, the
// polling loop, the top line, the backend, a search, limiters and their charts, callers, changes for a caller, refusals,
// trials, changes, the policy. Data from the server is set as text, never as markup; Trusted Types enforce it.

const part = (id) => document.getElementById(id);
const span = 5; // seconds of a chart's bar

// make returns an element with a class, a text and children.
function make(tag, className = "", text = "", ...children) {
  const made = document.createElement(tag);
  if (className) made.className = className;
  if (text !== "") made.textContent = text;
  made.append(...children);
  return made;
}

// say sets a text only if it differs, so that screen readers do not announce an unchanged text.
function say(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

function show(element, shown) {
  if (element.hidden === shown) element.hidden = !shown;
}

// ---- Texts and numbers ---------------------------------------------------------------------------------------------

const whole = new Intl.NumberFormat("en-GB", { maximumFractionDigits: 0 });
const tenth = new Intl.NumberFormat("en-GB", { maximumFractionDigits: 1 });
const many = (n, one, more = one + "s") => `${whole.format(n)} ${n === 1 ? one : more}`;
const rate = (n) => (n >= 100 ? whole : tenth).format(n);

// sum adds the numbers of a list from one index up to but not including another. A list that is left
// out counts as empty.
function sum(list = [], from = 0, to = list.length) {
  let n = 0;
  for (let i = Math.max(0, from); i < Math.min(to, list.length); i++) n += list[i];
  return n;
}


// clock formats t, in Unix seconds, as a time of day, with the date if it is not today's.
function clock(t) {
  const at = new Date(t * 1000);
  const time = at.toLocaleTimeString("en-GB");
  return at.toDateString() === new Date().toDateString() ? time : `${at.toLocaleDateString("en-GB", { day: "numeric", month: "short" })} ${time}`;
}

function lasting(seconds) {
  const s = Math.max(0, Math.round(seconds));
  if (s < 100) return `${s} s`;
  if (s < 6000) return `${Math.floor(s / 60)} min ${String(s % 60).padStart(2, "0")} s`;
  if (s < 172800) return `${Math.floor(s / 3600)} h ${String(Math.floor(s / 60) % 60).padStart(2, "0")} min`;
  return `${Math.floor(s / 86400)} days`;
}

// printable returns a text of an operator with visible escapes for what moves or reverses text.
const printable = (text) => String(text).replace(/[\p{Cc}\p{Cf}\p{Co}\p{Zl}\p{Zp}]/gu, (c) => `\\u{${c.codePointAt(0).toString(16)}}`);

// nameOf returns the name of a caller: its token's id, or its keyed hash.
const nameOf = (c) => c.name || c.hash;
const kindOf = (c) => ({ ip: "address", session: "session", token: "API token", cert: "certificate", agent: "agent", "": "caller" })[c.kind] ?? c.kind.split("+").map((s) => (s === "ip" ? "address" : s)).join(" + ");
const limiterOf = (name) => name || "no limiter";

// ---- The token -----------------------------------------------------------------------------------------------------

const kept = "weir-admin-token";
let token = "";

// takeToken reads the token from the fragment of the address and clears it there, so that it is not
// visible on the screen or in the history.
function takeToken() {
  const given = /^#token=(.+)$/.exec(location.hash);
  if (given) {
    history.replaceState(null, "", location.pathname + location.search);
    try { token = decodeURIComponent(given[1]); } catch { token = given[1]; }
    sessionStorage.setItem(kept, token);
  } else {
    token = token || (sessionStorage.getItem(kept) ?? "");
  }
}

function askToken(wrong) {
  sessionStorage.removeItem(kept);
  token = "";
  document.body.dataset.state = "door";
  for (const id of ["main", "nav", "facts"]) show(part(id), false);
  say(part("token-said"), "");
  judge("wait", "Waiting for a token", []);
  show(part("door"), true);
  say(part("door-wrong"), wrong);
  part("door-token").focus();
}

part("door-form").addEventListener("submit", (e) => {
  e.preventDefault();
  token = part("door-token").value.trim();
  part("door-token").value = "";
  if (!token) return;
  sessionStorage.setItem(kept, token);
  show(part("door"), false);
  judge("wait", "Connecting", []);
  loop.now();
});

// ---- The admin API -------------------------------------------------------------------------------------------------

class Refused extends Error {
  constructor(status, message, problems) { super(message); this.status = status; this.problems = problems; }
}

class Silent extends Error {}

// ask sends a request to the admin API of this origin and returns the answer. It throws a Refused for
// an error answer, and a Silent if there is no answer.
async function ask(path, body) {
  const asked = { headers: { Authorization: "Bearer " + token, Accept: "application/json" }, cache: "no-store", credentials: "omit",
    redirect: "error", signal: AbortSignal.timeout(8000) };
  if (body !== undefined) {
    asked.method = "POST";
    asked.headers["Content-Type"] = "application/json";
    asked.body = JSON.stringify(body);
  }
  let answer, text;
  try {
    answer = await fetch(path, asked);
    text = await answer.text();
  } catch (e) {
    throw new Silent(e.message);
  }
  let said = null;
  try { said = JSON.parse(text); } catch { said = null; }
  if (!answer.ok) throw new Refused(answer.status, said?.error?.message ?? `the server answered ${answer.status}`, said?.error?.problems);
  return said;
}

// ---- The loop ------------------------------------------------------------------------------------------------------

let seen = null; // the last status
let heard = 0; // when it arrived, by performance.now()
const loop = {
  timer: 0, busy: false, failures: 0, after: 0, since: 0, silent: 0,

  // now sends a request at once, unless one is in flight.
  now() {
    clearTimeout(this.timer);
    if (!this.busy) this.turn();
  },

  async turn() {
    if (!token) return;
    this.busy = true;
    const began = performance.now();
    try {
      const status = await ask("status?after=" + this.after);
      this.failures = this.silent = 0;
      heard = performance.now();
      seen = status;
      draw(status);
    } catch (e) {
      this.failed(e);
    }
    this.busy = false;
    if (!token) return;
    let wait = 1000 - (performance.now() - began) + 9 * (heard - began > 0 ? Math.max(0, heard - began - 100) : 0);
    if (this.failures > 0) wait = Math.min(10000, 500 * 2 ** this.failures);
    if (document.hidden) wait = Math.max(wait, 15000);
    this.timer = setTimeout(() => this.turn(), Math.max(wait, 50));
  },

  failed(e) {
    // 403: the token's role is too low to see anything; 429: too many wrong tokens, and this may be one
    if (e instanceof Refused && [401, 403, 429].includes(e.status)) {
      askToken(e.message);
      return;
    }
    this.failures++;
    this.silent = this.silent || performance.now();
    document.body.dataset.state = "stale";
    const known = seen ? [`The data below is ${lasting((performance.now() - heard) / 1000)} old. This page continues when the server answers.`] : ["This page continues when the server answers."];
    if (e instanceof Refused) judge("bad", `The server answers ${e.status}`, [e.message, ...known]);
    else if (e instanceof Silent) judge("bad", "The server does not answer", known);
    else judge("bad", "This page cannot show the server’s answer", [String(e)]);
  },
};

document.addEventListener("visibilitychange", () => { if (!document.hidden) loop.now(); });
addEventListener("hashchange", () => { if (location.hash.startsWith("#token=")) { takeToken(); show(part("door"), false); loop.now(); } });

// present returns the current second on the server's clock.
const present = () => seen.watch.now + Math.floor((performance.now() - heard) / 1000);

function draw(s) {
  if (s.watch.since !== loop.since) { // the server was restarted
    loop.since = s.watch.since;
    refusals.forget();
  }
  loop.after = s.watch.refusals.next;
  document.body.dataset.state = "live";
  for (const id of ["main", "nav", "facts"]) show(part(id), true);
  show(part("door"), false);
  show(part("demo"), s.demo === true);
  say(part("build"), s.version ? " " + s.version : "");
  say(part("token-said"), `Signed in as ${s.token.name}, with the role ${s.token.role}. `);
  drawTop(s);
  drawBackend(s);
  drawLimiters(s.watch);
  callers.draw(s.watch);
  refusals.add(s.watch);
  drawTrials(s);
  drawChanges(s);
  drawPolicy(s);
}

// may reports whether the token may make a change, such as "keys/reset".
const may = (change) => seen?.token.may.includes(change) ?? false;

// ---- The top line --------------------------------------------------------------------------------------------------

// judge returns the overall health, and the reasons if it is not good.
function judge(level, text, troubles) {
  part("verdict").dataset.level = level;
  say(part("verdict-text"), text);
  const list = part("troubles");
  if (list.dataset.said === troubles.join("\n")) return;
  list.dataset.said = troubles.join("\n");
  list.replaceChildren(...troubles.map((each) => make("li", "", each)));
}

function fact(id, text, small = "", level = "") {
  const at = part(id), key = text + "\n" + small + level;
  if (at.dataset.said === key) return;
  at.dataset.said = key;
  at.className = level;
  at.replaceChildren(text, ...(small ? [make("small", "", small)] : []));
}

// recent returns the rate a second over the last ten complete seconds.
function recent(list) {
  const n = list?.length ?? 0;
  return n < 2 ? 0 : sum(list, n - 11, n - 1) / Math.min(10, n - 1);
}

function drawTop(s) {
  let admitted = 0, refused = 0, near = 0, asked = 0, refusedAll = 0, nearAll = 0;
  for (const l of s.watch.limiters) {
    admitted += recent(l.series.admitted);
    refused += recent(l.series.refused);
    near += recent(l.series.near);
    asked += l.totals.admitted + l.totals.refused + l.totals.unauthenticated + l.totals.unavailable + l.totals.denied + l.totals.misdirected;
    refusedAll += l.totals.refused;
    nearAll += l.totals.near;
  }
  fact("fact-requests", `${rate(admitted + refused)} a second`, `${whole.format(asked)} since ${clock(s.watch.since)}`);
  fact("fact-refused", `${rate(refused)} a second`, `${whole.format(refusedAll)} in all`, refused > 0 ? "bad" : "");
  fact("fact-near", `${rate(near)} a second`, `${whole.format(nearAll)} with less than 20 % left`, near > 0 ? "low" : "");
  const p = s.policy, from = { contract: "the contract", file: p.path, stream: "standard input", posted: "posted" }[p.source] ?? p.source;
  fact("fact-policy", p.version, `${from}, since ${clock(p.since)}`, p.last.ok ? "" : "low");
  const kind = s.store.kind.replace(/(, kept in |; ).*/s, ""), units = s.store.leases;
  fact("fact-store", s.store.up ? "answers" : "no answer", s.store.up ? (units ? `${kind.replace(/, leases .*/s, "")}; ${many(units.takes, "take")} from leased units` : kind) : `counting here since ${clock(s.store.since)}`, s.store.up ? "" : "bad");
  part("fact-store").title = s.store.kind + (units ? `. Leased units: ${whole.format(units.granted)}, of which ${whole.format(units.returned)} went back in time, ${whole.format(units.held_back)} when their window was spent, and ${whole.format(units.stranded)} never. Refusals while other nodes may have had some: ${whole.format(units.claims)}.` : "");
  const t = s.table, full = t && t.capacity > 0 ? t.keys / t.capacity : 0;
  fact("fact-table", t ? `${tenth.format(100 * full)} % full` : "none", t ? `${whole.format(t.keys)} of ${whole.format(t.capacity)} windows` : "", full >= 0.8 ? "low" : "");

  const wrong = [];
  let level = "good", text = "All is well";
  const trouble = (how, head, more) => { if (level === "good" || how === "bad" && level !== "bad") { level = how; text = head; } wrong.push(more); };
  if (!s.store.up) trouble("bad", "The store does not answer", `Since ${clock(s.store.since)} each limiter follows its on_store_failure: it counts here, admits uncounted, or refuses.${s.store.error ? " The store: " + s.store.error : ""}`);
  for (const each of backendTroubles(s)) trouble(...each);
  if (!p.last.ok) trouble("low", "The new policy was rejected", `${clock(p.last.at)}: ${many(p.last.problems?.length ?? 0, "problem")} in the new policy; ${p.version} is still in force. Its problems are below.`);
  if (full >= 0.8) trouble(full >= 0.97 ? "bad" : "low", "The table is filling up", `Its ${whole.format(t.capacity)} windows are ${tenth.format(100 * full)} % used: when it is full, new callers share budgets. Raise --memory.`);
  if (t?.shared > 0 && full >= 0.8) wrong.push(`${many(t.shared, "charge")} went to a budget that new callers share.`);
  if (s.candidate && !s.candidate.last.ok) trouble("low", "The candidate policy was rejected", `${clock(s.candidate.last.at)}: see Trials.`);
  if (s.watch.not_watched > 0) trouble("low", "Some requests are not shown", `${many(s.watch.not_watched, "request")} of limiters beyond the first 1000 are not watched.`);
  judge(level, text, wrong);
  document.title = level === "good" ? (refused > 0 ? `${rate(refused)} refused/s · Weir` : "Weir") : `⚠ ${text} · Weir`;
}

// ---- The backend ---------------------------------------------------------------------------------------------------

// sitesOf returns the sites of the backend, each with its addresses.
function sitesOf(s) {
  const sites = new Map();
  for (const u of s.upstreams ?? []) sites.set(u.site, [...(sites.get(u.site) ?? []), u]);
  return sites;
}

const siteOf = (site, sites) => site === "*" ? (sites.size > 1 ? "the backend of all other hosts" : "the backend") : `the backend of ${site}`;
const capital = (text) => text[0].toUpperCase() + text.slice(1);

// unanswered describes the requests of a site that no address answered.
const unanswered = (u) => [[u.answered_502, 502], [u.answered_504, 504]].filter(([n]) => n > 0).map(([n, status]) => `${many(n, "request")} answered ${status}`).join(", ");

// maxTroubles is how many sites are named of those that are down, and of those that are down in part.
const maxTroubles = 5;

// firstOf returns the first of some texts, and how many more there are.
const firstOf = (texts) => texts.length <= maxTroubles ? texts : [...texts.slice(0, maxTroubles), `And ${whole.format(texts.length - maxTroubles)} more: see Backend.`];

// backendTroubles returns what is wrong with the backend: a level, a head and a text for each site. If several are down, the texts
// are short: the addresses are in the table.
function backendTroubles(s) {
  const sites = sitesOf(s), gone = [], partly = [];
  for (const [site, all] of sites) {
    const down = all.filter((u) => !u.up);
    if (down.length === 0) continue;
    const since = Math.max(...down.map((u) => u.since)), counts = unanswered(all[0]);
    if (down.length === all.length) gone.push({
      site,
      alone: `${capital(siteOf(site, sites))}, ${down.map((u) => u.address).join(", ")}, has not answered since ${clock(since)}${counts ? `: ${counts} since the start` : ""}.`,
      beside: `${site === "*" ? "All other hosts" : site}: no answer since ${clock(since)}${counts ? `; ${counts}` : ""}.`,
    });
    else partly.push(`${capital(siteOf(site, sites))}: ${down.map((u) => `${u.address} has not answered since ${clock(u.since)}`).join(", ")}; the other addresses get its requests.`);
  }
  const alone = gone.length === 1;
  const head = alone ? `${capital(siteOf(gone[0].site, sites))} is down` : `${whole.format(gone.length)} backends are down`;
  return [
    ...firstOf(gone.map((each) => alone ? each.alone : each.beside)).map((text) => ["bad", head, text]),
    ...firstOf(partly).map((text) => ["low", "An address of the backend is down", text]),
  ];
}

function drawBackend(s) {
  const list = s.upstreams ?? [], sites = sitesOf(s), down = s.upstreams_down;
  for (const id of ["backend", "nav-backend", "fact-backend-place"]) show(part(id), list.length > 0);
  if (list.length === 0) return;
  const inAll = s.upstreams_in_all;
  fact("fact-backend", down === 0 ? "up" : inAll === 1 ? "down" : `${whole.format(down)} of ${whole.format(inAll)} down`, (down > 0 && inAll > 1 ? "addresses, " : "") + many(list.reduce((n, u) => n + u.in_flight, 0), "request") + " in flight", down === 0 ? "" : "bad");
  say(part("backend-said"), s.upstreams_cut ? `${whole.format(list.length)} of ${whole.format(inAll)} addresses, those that are down first` : "");
  renew(part("backend-rows"), list, (u) => {
    const th = make("th", "", "", make("span", "who", u.address), ...(sites.size > 1 || u.site !== "*" ? [make("span", "of", u.site === "*" ? "all other hosts" : u.site)] : []));
    th.scope = "row";
    th.setAttribute("role", "rowheader");
    const row = make("tr", "", "", th, make("td", "state", `${u.up ? "up" : "down"} since ${clock(u.since)}`));
    for (const [label, n, bad] of [["in flight", u.in_flight], ["failures", u.failures], ["502", u.answered_502, true], ["504", u.answered_504, true]]) {
      const td = make("td", bad && n > 0 ? "some" : "", whole.format(n));
      td.dataset.label = label;
      row.append(td);
    }
    for (const td of row.querySelectorAll("td")) td.setAttribute("role", "cell");
    row.setAttribute("role", "row");
    row.dataset.up = u.up ? "yes" : "no";
    return row;
  });
}

// ---- Find a caller -------------------------------------------------------------------------------------------------

// questionOf returns how a text names a caller. The secret of an API token is never sent.
function questionOf(text) {
  const secret = /^wpt_([^_]+)_/.exec(text);
  if (secret) return { token: secret[1] };
  if (/^[0-9.]+$/.test(text) && text.includes(".") || /^[0-9a-f:.]*:[0-9a-f:.]*$/i.test(text)) return { ip: text };
  return /^[\w-]{40,}$/.test(text) ? { denial: text } : { token: text };
}

const find = {
  async send() {
    const text = part("find-what").value.trim(), question = questionOf(text), place = part("found");
    if (!text) return;
    say(part("find-wrong"), "");
    place.replaceChildren(make("p", "hint", "Asking…"));
    const answers = [];
    const failed = (e) => say(part("find-wrong"), e instanceof Refused ? e.message : "The server does not answer.");
    if (question.denial) await ask("denials/" + encodeURIComponent(text)).then((x) => answers.push(explained(x)), failed);
    if (!part("find-wrong").textContent) await ask("keys?" + new URLSearchParams(question)).then((x) => answers.push(...this.windows(x)), failed);
    place.replaceChildren(...answers);
  },

  // windows shows the windows that count a caller.
  windows(x) {
    const known = x.windows.filter((w) => !w.lacks), lacking = x.windows.length - known.length;
    const hint = make("p", "hint", [known.length === 0 ? "No window counts by this alone." : "", lacking > 0 ? `${many(lacking, "window")} count by more than this: weir key show names such a caller.` : ""].join(" ").trim());
    if (known.length === 0) return [hint];
    const head = make("tr", "", "", ...["Limiter", "Used", "Resets"].map((text) => { const th = make("th", "", text); th.scope = "col"; return th; }));
    const rows = known.map((w) => {
      const notes = [w.without && `of requests without ${w.without.join(" and ")}`, w.exempt && "exempt", w.denied && "denied", w.shared && "shared by all", w.grant && `granted until ${clock(w.grant.until)}`, w.penalty > 0 && `under a penalty until ${clock(w.penalty)}`].filter(Boolean);
      const row = cells("", `${whole.format(w.count)} of ${whole.format(w.limit)}${w.in_flight ? " in flight" : ""}`, w.reset > x.now ? `in ${lasting(w.reset - x.now)}` : "");
      row.firstChild.append(make("span", "who", w.limiter), make("span", "of", [w.window, ...notes].join(", ")));
      return row;
    });
    const table = make("table", "", "", make("thead", "", "", head), make("tbody", "", "", ...rows));
    table.setAttribute("aria-labelledby", "find-title");
    return hint.textContent ? [table, hint] : [table];
  },
};

part("find-form").addEventListener("submit", (e) => { e.preventDefault(); find.send(); });

// arrange puts the callers before the charts on a narrow screen, in the order of the document too.
const narrow = matchMedia("(max-width: 40rem)");
const arrange = () => part("main").insertBefore(part(narrow.matches ? "columns" : "limiters"), part(narrow.matches ? "limiters" : "columns"));
narrow.addEventListener("change", arrange);
if (narrow.matches) arrange();

// ---- Limiters ------------------------------------------------------------------------------------------------------

const columns = [["admitted", "Admitted"], ["near", "Near limit"], ["refused", "Refused"], ["unauthenticated", "Unauthenticated"], ["unavailable", "Store away"], ["exempt", "Exempt"], ["denied", "Denied"], ["misdirected", "Misdirected"]];
const usual = 3; // columns that are always shown
const cards = new Map(); // limiter → card
let most = 24; // cards shown

function drawLimiters(w) {
  const alive = (l) => sum(l.series.admitted) + sum(l.series.refused) + sum(l.series.unauthenticated) + sum(l.series.unavailable) + sum(l.series.denied) + sum(l.series.misdirected) > 0;
  const all = w.limiters.filter((l) => l.name !== "" ? l.in_force || alive(l) : l.totals.admitted + l.totals.misdirected > 0);
  const sorted = [...all.filter(alive), ...all.filter((l) => !alive(l))];
  show(part("no-limiters"), all.length === 0);
  const shown = sorted.slice(0, most);
  const more = part("more-limiters");
  show(more, sorted.length > most);
  say(more, `Show ${whole.format(sorted.length - shown.length)} more`);
  const names = new Set(shown.map((l) => l.name));
  for (const [name, card] of cards) if (!names.has(name)) { card.remove(); cards.delete(name); }
  const place = part("limiter-cards");
  shown.forEach((l, i) => {
    if (!cards.has(l.name)) cards.set(l.name, new Card(l.name));
    const card = cards.get(l.name);
    if (place.children[i] !== card.element) place.insertBefore(card.element, place.children[i] ?? null);
    card.draw(l, w, alive(l));
  });
}

part("more-limiters").addEventListener("click", () => {
  most += 100;
  const first = cards.size;
  drawLimiters(seen.watch);
  const next = part("limiter-cards").children[first];
  if (next) { next.tabIndex = -1; next.focus(); }
});

const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue("--" + name).trim();
const hand = uPlot.sync("limiters");

// unitsOf describes what became of the reservations of a limiter, and its slots in use.
function unitsOf(l) {
  const s = l.settled, parts = [];
  if (!s) return "";
  if (l.windows?.some((w) => / in flight by /.test(w)) || s.slots > 0) parts.push(`${many(s.slots, "slot")} in use here`);
  if (s.reserved > 0) {
    parts.push(`${many(s.reserved, "unit")} reserved, ${whole.format(s.given_back)} given back`);
    if (s.overrun > 0) parts.push(`${whole.format(s.overrun)} beyond the reserve`);
    if (s.unreported > 0) parts.push(`${many(s.unreported, "cost")} not reported`);
    if (s.stranded > 0) parts.push(`${whole.format(s.stranded)} stranded`);
  }
  return parts.join("; ");
}

// A Card shows one limiter: its numbers, and a chart of them.
class Card {
  constructor(name) {
    this.element = make("article", "card limiter");
    this.element.dataset.limiter = name;
    const title = make("h3", "", limiterOf(name));
    title.id = "limiter-" + cards.size + "-" + (Card.made = (Card.made ?? 0) + 1);
    this.element.setAttribute("aria-labelledby", title.id);
    this.badge = make("span", "badge");
    this.badge.hidden = true;
    this.windows = make("ul", "window");
    this.units = make("p", "units");
    this.chart = make("div", "chart");
    this.chart.setAttribute("role", "img");
    this.rows = new Map();
    const head = make("tr", "", "", make("th"), ...["a second", "5 min", "in all"].map((text) => make("th", "", text)));
    for (const th of head.children) th.scope = "col";
    head.firstChild.append(make("span", "unseen", "Requests"));
    const body = make("tbody");
    for (const [column, label] of columns) {
      const th = make("th", "", "", make("span", "swatch " + column), label);
      th.scope = "row";
      if (!["admitted", "near", "refused"].includes(column)) th.firstChild.remove();
      const row = make("tr", "", "", th, make("td"), make("td"), make("td"));
      row.dataset.column = column;
      row.lastChild.dataset.total = column;
      this.rows.set(column, row);
      body.append(row);
    }
    const table = make("table", "", "", make("thead", "", "", head), body);
    table.setAttribute("aria-labelledby", title.id);
    this.element.append(make("header", "", "", title, this.badge), this.windows, this.chart, table, this.units);
  }

  remove() {
    this.plot?.destroy();
    this.element.remove();
  }

  draw(l, w, alive) {
    this.element.dataset.quiet = alive ? "no" : "yes";
    const badge = !l.in_force && l.name ? "no longer in force" : l.shadow?.on ? "shadow" : alive ? "" : "quiet";
    show(this.badge, badge !== "");
    say(this.badge, badge);
    renew(this.windows, l.windows ?? [], (window) => make("li", "", window));
    const units = unitsOf(l);
    show(this.units, units !== "");
    say(this.units, units);
    columns.forEach(([column], i) => {
      const row = this.rows.get(column), total = l.totals[column] ?? 0;
      show(row, i < usual || total > 0);
      row.dataset.none = total > 0 ? "no" : "yes";
      const now = recent(l.series[column]), lately = sum(l.series[column]);
      [[now, rate], [lately, (n) => whole.format(n)], [total, (n) => whole.format(n)]].forEach(([n, words], at) => {
        say(row.children[at + 1], words(n));
        row.children[at + 1].toggleAttribute("data-zero", n === 0);
      });
    });
    if (alive) this.paint(l.series, w);
  }

  paint(series, w) {
    const from = w.now - w.seconds + 1;
    const first = Math.ceil(from / span) * span, times = [], admitted = [], refused = [], near = [];
    for (let t = first; t <= w.now; t += span) {
      const at = t - from;
      times.push(t);
      admitted.push(sum(series.admitted, at, at + span) / span);
      near.push(sum(series.near, at, at + span) / span);
      refused.push(sum(series.refused, at, at + span) / span);
    }
    // Bars are drawn over each other: all requests, admitted ones, admitted ones that were not near.
    const stack = [times, admitted.map((n, i) => n + refused[i]), admitted, admitted.map((n, i) => n - near[i])];
    this.values = { times, admitted, near, refused };
    this.range = [first - span / 2, w.now + span / 2];
    const top = Math.max(0, ...stack[1]), at = times[stack[1].indexOf(top)];
    this.chart.setAttribute("aria-label", `The last ${lasting(w.seconds)}: ${many(sum(series.admitted), "request")} admitted, ${whole.format(sum(series.near))} of them near the limit, ${whole.format(sum(series.refused))} refused. ` +
      `Most at ${clock(at)}: ${rate(top)} a second.`);
    if (this.plot) {
      this.fit();
      this.plot.setData(stack);
    } else if (this.chart.clientWidth > 0) {
      this.plot = new uPlot(this.options(), stack, this.chart);
      this.note();
    }
  }

  fit() {
    const width = this.chart.clientWidth;
    if (width > 0 && width !== this.plot.width) this.plot.setSize({ width, height: this.chart.clientHeight });
  }

  options() {
    const bars = uPlot.paths.bars({ size: [0.82, 24], align: 1, gap: 0 });
    const series = (name) => ({ fill: () => colour(name), width: 0, paths: bars, points: { show: false } });
    const axis = { stroke: () => colour("muted"), font: "11px system-ui, sans-serif", ticks: { show: false }, grid: { stroke: () => colour("line"), width: 1 } };
    return {
      width: this.chart.clientWidth, height: this.chart.clientHeight, padding: [6, 18, 0, 0], legend: { show: false },
      cursor: { y: false, drag: { x: false, y: false }, points: { show: false }, sync: { key: hand.key, setSeries: false } },
      hooks: { setCursor: [() => this.note()] },
      scales: { x: { time: true, range: () => this.range }, y: { range: (u, low, high) => [0, Math.max(1, high * 1.05)] } },
      axes: [
        { ...axis, size: 20, gap: 3, space: 70, grid: { show: false }, values: (u, ticks) => ticks.map((t) => new Date(t * 1000).toLocaleTimeString("en-GB", { hour: "2-digit", minute: "2-digit" })), incrs: [60, 120] },
        { ...axis, size: 30, gap: 3, space: 26, values: (u, ticks) => ticks.map((n) => tenth.format(n)), incrs: [0.5, 1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10000, 20000, 50000, 100000, 1000000] },
      ],
      series: [{}, series("refused"), series("near"), series("admitted")],
    };
  }

  // note describes the bar under the pointer.
  note() {
    const i = this.plot?.cursor.idx, v = this.values;
    this.chart.title = i === null || i === undefined || !(i in v.times) ? "" :
      `${clock(v.times[i])}: ${rate(v.admitted[i])} admitted, ${rate(v.near[i])} of them near the limit, ${rate(v.refused[i])} refused a second`;
  }
}

addEventListener("resize", () => { for (const card of cards.values()) if (card.plot) card.fit(); });
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => { for (const card of cards.values()) card.plot?.redraw(false, true); });

// held reports whether the user is interacting with a part of the page. If so, it must not move.
let moved = -Infinity; // when the user last moved the pointer or pressed a key
for (const event of ["pointermove", "pointerdown", "keydown"]) addEventListener(event, () => { moved = performance.now(); }, { passive: true, capture: true });
const held = (element) => performance.now() - moved < 20000 && (element.matches(":hover") || element.contains(document.activeElement) && document.activeElement !== element);

// ---- Callers -------------------------------------------------------------------------------------------------------

const callers = {
  rows: new Map(), // limiter and hash → row
  shown: 14, // max rows for all limiters; for one limiter, all rows are shown

  draw(w) {
    const acts = may("keys/reset") || may("keys/grant");
    part("callers-table").dataset.acts = acts ? "yes" : "no";
    show(part("callers-may"), !acts);
    if (!acts) say(part("callers-may"), `The token ${seen.token.name} has the role ${seen.token.role}. To reset a budget or grant more, sign in with a token with the role operate.`);
    this.offer(w.limiters.filter((l) => l.name && (l.spending || l.refused)).map((l) => l.name));
    const only = part("callers-limiter").value, all = [];
    for (const l of w.limiters) if (!only || l.name === only) all.push(...this.of(l));
    const order = { budget: (c) => c.used, units: (c) => c.units, refused: (c) => c.refused }[part("callers-order").value];
    all.sort((a, b) => order(b) - order(a) || b.units - a.units || (a.key < b.key ? -1 : 1));
    const list = only ? all : all.slice(0, this.shown);
    show(part("no-callers"), list.length === 0 && this.rows.size === 0);
    show(part("callers-table"), list.length > 0 || this.rows.size > 0);
    show(part("callers-hint"), list.length > 0);
    const place = part("callers-rows");
    if (held(part("callers-table"))) { // existing rows are updated, but not moved
      for (const c of all) this.rows.get(c.key)?.draw(c);
      return;
    }
    const keys = new Set(list.map((c) => c.key));
    for (const [key, row] of this.rows) if (!keys.has(key)) { row.element.remove(); this.rows.delete(key); }
    list.forEach((c, i) => {
      if (!this.rows.has(c.key)) this.rows.set(c.key, new Row());
      const row = this.rows.get(c.key);
      if (place.children[i] !== row.element) place.insertBefore(row.element, place.children[i] ?? null);
      row.draw(c);
    });
  },

  // of returns the callers of a limiter, each once, with the used part of its budget.
  of(l) {
    const by = new Map();
    for (const c of [...(l.spending ?? []), ...(l.refused ?? [])]) {
      if (by.has(c.hash)) continue;
      const open = c.last && c.last.reset > present();
      by.set(c.hash, { ...c, reserves: l.settled?.reserved > 0, limiter: l.name, key: l.name + " " + c.hash, open, used: open && c.last.limit > 0 ? c.last.count / c.last.limit : 0 });
    }
    return by.values();
  },

  offer(names) {
    const select = part("callers-limiter");
    if (select.dataset.offered === names.join(" ") || document.activeElement === select) return;
    select.dataset.offered = names.join(" ");
    const chosen = select.value;
    select.replaceChildren(select.options[0], ...names.map((name) => new Option(name, name)));
    select.value = names.includes(chosen) ? chosen : "";
  },
};

for (const id of ["callers-limiter", "callers-order"]) part(id).addEventListener("change", () => { if (seen) callers.draw(seen.watch); });

// A Row shows one caller of one limiter.
class Row {
  constructor() {
    const cell = (name) => { const td = make("td", name); td.setAttribute("role", "cell"); return td; };
    this.who = make("span", "who");
    this.of = make("span", "of");
    const th = make("th", "", "", this.who, this.of);
    th.scope = "row";
    th.setAttribute("role", "rowheader");
    this.fill = make("span");
    const gauge = make("div", "gauge", "", this.fill);
    gauge.setAttribute("aria-hidden", "true");
    this.count = make("span", "count");
    this.budget = cell("budget");
    this.budget.append(gauge, this.count);
    [this.reset, this.units, this.refused, this.acts] = ["reset", "units", "refusedness", "acts"].map(cell);
    this.buttons = [["Reset", "reset"], ["Grant", "grant"]].map(([label, what]) => {
      const button = make("button", "", label);
      button.type = "button";
      button.addEventListener("click", () => act.open(what, this.caller, button));
      return button;
    });
    this.acts.append(this.buttons[0], " ", this.buttons[1]);
    this.element = make("tr", "", "", th, this.budget, this.reset, this.units, this.refused, this.acts);
    this.element.setAttribute("role", "row");
  }

  draw(c) {
    this.caller = c;
    this.element.dataset.caller = c.hash;
    this.element.dataset.limiter = c.limiter;
    say(this.who, nameOf(c));
    this.who.classList.toggle("hash", !c.name);
    say(this.of, `${kindOf(c)} at ${c.limiter}${c.exempt ? ", exempt" : ""}${c.open && c.last.penalty ? ", under a penalty" : ""}`);
    const last = c.last;
    this.element.dataset.level = !c.open ? "idle" : last.remaining <= 0 ? "spent" : last.remaining * 5 < last.limit ? "near" : "some";
    this.fill.style.width = Math.min(100, 100 * c.used) + "%";
    say(this.count, !last ? "not known yet" : last.in_flight ? `${c.open ? whole.format(last.count) + " of" : "at most"} ${whole.format(last.limit)} in flight` : c.open ? `${whole.format(last.count)} of ${whole.format(last.limit)}` : `all of ${whole.format(last.limit)} left`);
    this.count.title = last?.window ?? "";
    say(this.reset, c.open && !last.in_flight ? lasting(last.reset - present()) : "");
    say(this.units, whole.format(c.units));
    if (c.reserves) this.units.append(make("span", "of", `of ${whole.format(c.reserved)} reserved`));
    this.units.title = c.reserves ? "what the requests have cost where that is known, else what was reserved for them; halves every five minutes" : "";
    say(this.refused, whole.format(c.refused));
    this.refused.classList.toggle("some", c.refused >= 1);
    this.buttons.forEach((button) => {
      button.disabled = !c.actionable;
      button.title = c.actionable ? "" : "the keys of this caller were not saved";
      button.setAttribute("aria-label", `${button.textContent} ${nameOf(c)} at ${c.limiter}`);
    });
  }
}

// ---- Changes for a caller ------------------------------------------------------------------------------------------

const act = {
  what: "", caller: null, from: null,

  open(what, caller, from) {
    Object.assign(this, { what, caller, from });
    say(part("act-title"), what === "reset" ? "Reset a budget" : "Grant other limits");
    const last = caller.last;
    say(part("act-of"), `${kindOf(caller)} ${nameOf(caller)} at ${caller.limiter}${last ? `: ${last.window}` : ""}. ` +
      (what === "reset" ? "Its next request starts new windows." : "They apply on every node that shares the store, until they end."));
    show(part("act-grant"), what === "grant");
    part("act-grant").disabled = what !== "grant";
    say(part("act-do"), what === "reset" ? "Reset" : "Grant");
    say(part("act-why-hint"), "is recorded in the audit log");
    say(part("act-wrong"), "");
    part("act-why").value = "";
    this.until();
    part("act").showModal();
    part(what === "grant" ? "act-times" : "act-why").focus();
  },

  until() {
    const last = this.caller?.last, lasts = Number(part("act-for").value);
    const early = last && !last.in_flight && last.reset > present() + lasts;
    say(part("act-until"), `until ${clock(Date.now() / 1000 + lasts)}` + (early ? `, before the window resets at ${clock(last.reset)}: what is spent beyond the policy’s limit counts until then` : ""));
  },

  body() {
    const body = { limiter: this.caller.limiter, hash: this.caller.hash, why: part("act-why").value.trim() };
    if (this.what === "grant") {
      if (document.querySelector("input[name=how]:checked").value === "times") body.times = Number(part("act-times").value);
      else body.limits = part("act-limits").value.trim().split(/[ ,]+/).map(Number);
      body.for = part("act-for").value + "s";
    }
    return body;
  },

  async send() {
    const { what, caller, from } = this, button = part("act-do");
    button.disabled = true;
    say(part("act-wrong"), "");
    try {
      await ask("keys/" + what, this.body());
      part("act").close();
      say(part("callers-said"), `${what === "reset" ? "Reset" : "Granted"}: ${kindOf(caller)} ${nameOf(caller)} at ${caller.limiter}.`);
      if (from.isConnected) from.focus();
      loop.now();
    } catch (e) {
      say(part("act-wrong"), e instanceof Refused ? e.message : "The server does not answer. The change may or may not have been made.");
    }
    button.disabled = false;
  },
};

part("act-for").addEventListener("change", () => act.until());
part("act-cancel").addEventListener("click", () => part("act").close());
for (const [id, how] of [["act-times", "times"], ["act-limits", "limits"]]) part(id).addEventListener("input", () => { document.querySelector(`input[name=how][value=${how}]`).checked = true; });
part("act-form").addEventListener("submit", (e) => { e.preventDefault(); act.send(); });

// ---- Refusals ------------------------------------------------------------------------------------------------------

const refusals = {
  waiting: [], // refusals that arrived while the user was reading
  kept: 120,

  forget() {
    this.waiting = [];
    loop.after = 0;
    part("refusals-list").replaceChildren();
  },

  add(w) {
    const known = Number(part("refusals-list").firstElementChild?.dataset.number ?? 0);
    this.waiting.push(...w.refusals.list.filter((r) => r.number > known && !this.waiting.some((each) => each.number === r.number)));
    this.waiting = this.waiting.slice(-this.kept);
    if (!held(part("refusals-list"))) this.let();
    const more = part("refusals-more");
    show(more, this.waiting.length > 0);
    if (this.waiting.length > 0) say(more, many(this.waiting.length, "newer one"));
    show(part("no-refusals"), part("refusals-list").childElementCount === 0);
    say(part("refusals-said"), w.refusals.not_shown > 0 ? `newest first; ${whole.format(w.refusals.not_shown)} in seconds with more than 1000 are not shown` : "newest first");
  },

  // let adds the waiting refusals to the list.
  let() {
    const list = part("refusals-list");
    for (const r of this.waiting) list.prepend(this.item(r));
    this.waiting = [];
    while (list.childElementCount > this.kept) list.lastElementChild.remove();
  },

  item(r) {
    const time = make("time", "", clock(r.at));
    time.dateTime = new Date(r.at * 1000).toISOString();
    const who = make("span", r.name ? "" : "hash", nameOf(r));
    const what = make("div", "", "", make("span", "who", r.limiter), make("span", "of", kindOf(r) + " ", who), make("span", "of", r.standing.window));
    const button = make("button", "", "Explain");
    button.type = "button";
    button.setAttribute("aria-expanded", "false");
    button.setAttribute("aria-label", `Explain the refusal of ${nameOf(r)} at ${clock(r.at)}`);
    if (!r.denial) { button.disabled = true; button.title = "this refusal has no id"; }
    const item = make("li", "", "", make("div", "refusal", "", time, what, button));
    item.dataset.number = r.number;
    button.addEventListener("click", () => this.explain(r, item, button));
    return item;
  },

  async explain(r, item, button) {
    const open = item.querySelector(".explained");
    if (open) {
      open.remove();
      button.setAttribute("aria-expanded", "false");
      return;
    }
    const place = make("div", "explained", "", make("p", "hint", "Asking…"));
    place.setAttribute("role", "status");
    item.append(place);
    button.setAttribute("aria-expanded", "true");
    try {
      place.replaceChildren(explained(await ask("denials/" + encodeURIComponent(r.denial))));
    } catch (e) {
      place.replaceChildren(make("p", "wrong", e instanceof Refused ? e.message : "The server does not answer."));
    }
  },
};

part("refusals-more").addEventListener("click", () => { refusals.let(); show(part("refusals-more"), false); part("refusals-list").querySelector("button")?.focus(); });

// explained shows the explanation of a denial id.
function explained(x) {
  const list = make("dl");
  const add = (name, text) => { if (text) list.append(make("dt", "", name), make("dd", "", text)); };
  add("window", x.window);
  if (x.denied) add("denied", `the limiter denies this caller${x.denied_by ? ", by " + x.denied_by : ""}; no budget was touched`);
  else if (x.in_flight) add("in flight", `${whole.format(x.count)} of ${many(x.limit, "request")} at the same time`);
  else add("spent", `${whole.format(x.count)} of ${whole.format(x.limit)} units`);
  add("penalty", x.penalty && "refused everything of the limiter, because it had been refused often");
  add("counted by", kindOf({ kind: x.kinds }) + (x.token ? " " + x.token : ""));
  if (!x.denied) add("restored", x.in_flight ? "when one of them has ended" : `${clock(x.reset)}, ${x.reset > present() ? "in " + lasting(x.reset - present()) : "by now"}`);
  add("limiter", `${x.limiter}${x.line ? ", " + x.line : ""}`);
  add("policy", `${x.policy}, ${x.policy_in_force ? "still in force" : x.changed ?? "no longer in force"}`);
  add("reads now", x.reads);
  return list;
}

// ---- Trials --------------------------------------------------------------------------------------------------------

function cells(...values) {
  const [first, ...rest] = values;
  const th = make("th", "", first);
  th.scope = "row";
  return make("tr", "", "", th, ...rest.map((each) => make("td", "", each)));
}

// renew replaces rows only if one of them has changed, so that reading or listening to the others is
// not interrupted.
function renew(body, list, make) {
  list.forEach((each, i) => {
    const row = make(each), old = body.children[i];
    if (!old) body.append(row);
    else if (old.textContent !== row.textContent) old.replaceWith(row);
  });
  while (body.childElementCount > list.length) body.lastElementChild.remove();
}

function drawTrials(s) {
  const shadows = s.watch.limiters.filter((l) => l.shadow);
  show(part("shadows"), shadows.length > 0);
  renew(part("shadow-rows"), shadows, (l) => {
    const { would_admit: admit, would_refuse: refuse, skipped, on } = l.shadow;
    const row = cells(l.name + (on ? "" : " (no longer)"), whole.format(admit), whole.format(refuse),
      admit + refuse > 0 ? tenth.format(100 * refuse / (admit + refuse)) + " %" : "–", whole.format(skipped));
    row.dataset.limiter = l.name;
    row.children[2].classList.toggle("some", refuse > 0);
    return row;
  });
  const c = s.candidate, difference = s.watch.candidate;
  show(part("candidate"), Boolean(c));
  show(part("no-trials"), !c && shadows.length === 0);
  if (!c) return;
  say(part("candidate-said"), (c.version ? `${c.version} from ${c.path}, compared since ${clock(difference.since)}.` : `${c.path} has never been valid.`) + (c.last.ok ? "" : ` The last attempt, ${clock(c.last.at)}, was rejected:`));
  problems(part("candidate-problems"), c.last);
  show(part("candidate-table"), difference.limiters.length > 0);
  renew(part("candidate-rows"), difference.limiters, (d) => {
    const unauthenticated = d.newly_unauthenticated > 0 ? ` (${whole.format(d.newly_unauthenticated)} unauthenticated)` : "";
    const row = cells(limiterOf(d.limiter), whole.format(d.newly_refused) + unauthenticated,
      ...[d.callers_newly_refused, d.newly_admitted, d.callers_newly_admitted, d.same].map((n) => whole.format(n)));
    row.dataset.limiter = d.limiter;
    row.children[1].classList.toggle("some", d.newly_refused > 0);
    return row;
  });
}

// ---- Changes -------------------------------------------------------------------------------------------------------

let changesShown = -1; // status.changes of the shown list

// about returns what an entry of the audit log changed.
function about(e) {
  const after = e.after ?? {}, parts = [];
  if (e.limiter) parts.push(e.limiter);
  if (e.caller) parts.push(`${kindOf({ kind: e.caller.kinds })} ${e.caller.token ?? e.caller.hash}`);
  if (e.what === "policy") parts.push(`${e.before?.version ?? "none"} → ${after.version}, from ${after.path || after.source}`);
  if (after.name) parts.push(after.name + (after.role ? `, with the role ${after.role}` : ""));
  if ("limits" in after) parts.push(after.limits?.length > 0 ? `limits ${after.limits.join(", ")} until ${clock(after.until)}` : "taken back");
  return parts.join(", ");
}

function drawChanges(s) {
  if (changesShown === s.changes) return;
  changesShown = s.changes;
  ask("audit?last=30").then(({ entries }) => {
    show(part("no-changes"), entries.length === 0);
    part("changes-list").replaceChildren(...entries.reverse().map((e) => {
      const at = Date.parse(e.time) / 1000, time = make("time", "", clock(at));
      time.dateTime = e.time;
      const what = make("div", "", "", make("span", "who", printable(`${e.what} by ${e.who}`)), make("span", "of", printable(about(e))));
      if (e.why) what.append(make("span", "why", printable(e.why)));
      return make("li", "", "", time, what);
    }));
  }, () => { changesShown = -1; });
}

// ---- The policy ----------------------------------------------------------------------------------------------------

let policyShown = ""; // version and time of the shown text

function problems(list, last) {
  const texts = last.ok ? [] : (last.problems ?? []).map((p) => typeof p === "string" ? p : `${p.line ? `line ${p.line}: ` : ""}${p.message ?? p.text ?? ""}`);
  if (list.dataset.said === texts.join("\n")) return;
  list.dataset.said = texts.join("\n");
  list.replaceChildren(...texts.map((text) => make("li", "", text)));
}

function drawPolicy(s) {
  const p = s.policy;
  say(part("policy-said"), `${p.version}, since ${clock(p.since)}${p.by ? ", by " + p.by : ""}`);
  show(part("policy-refused"), !p.last.ok);
  if (!p.last.ok) say(part("policy-refused-said"), `A new policy was rejected at ${clock(p.last.at)}:`);
  problems(part("policy-problems"), p.last);
  const key = p.version + " " + p.since;
  if (policyShown === key) return;
  policyShown = key;
  ask("policy").then((answer) => say(part("policy-text"), answer.text), () => { policyShown = ""; });
}

// ---- Begin ---------------------------------------------------------------------------------------------------------

setInterval(() => { if (seen && document.body.dataset.state === "stale") callers.draw(seen.watch); }, 1000); // keeps the countdowns running
takeToken();
if (token) loop.now();
else askToken("");
