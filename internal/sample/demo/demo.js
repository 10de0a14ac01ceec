"use strict";

// The chat widget of Weir's sample backend: one page, no library. From top to bottom: budgets, the API and its session,
// the event feed, the chat, the other forms, and drawing. Text from the server or from users is set as text, never as
// markup.

const root = document.documentElement;
const api = root.dataset.api ?? ""; // the origin of the API, if it differs from that of this page
const agent = root.dataset.agent || new URLSearchParams(location.search).get("agent") || "demo";
const part = (id) => document.getElementById(id);
const pause = (ms) => new Promise((done) => setTimeout(done, ms));

// ---- Budgets: the window of every answer ---------------------------------------------------------------------------

// Under the contract, endpoints of one family share a budget. Under another policy they may not. Then their limits
// differ, or the page waits longer than necessary.
const endpoints = {
  messages: { label: "Messages", family: "session" },
  feedback: { label: "Feedback", family: "session" },
  events: { label: "Event feed", family: "session" },
  typing: { label: "Typing", family: "typing" },
  coupon: { label: "Coupon", family: "coupon" },
  satisfaction: { label: "Rating", family: "satisfaction" },
  leads: { label: "Contact", family: "leads" },
  init: { label: "New session", family: "init" },
};
const budgets = new Map(); // endpoint → { limit, remaining, reset, until }, until by this page's clock
const refusals = new Map(); // family → { until, message, language }: its last 429

function whole(response, field) {
  const value = response.headers.get(field);
  return value !== null && /^[0-9]+$/.test(value) ? Number(value) : null;
}

// note stores the budget that an answer reports. Reset − Date uses the server's clock alone, so an incorrect local clock
// has no effect. Counted from the arrival of the answer, the time is never too short.
function note(endpoint, response) {
  const now = performance.now();
  const limit = whole(response, "X-RateLimit-Limit");
  const remaining = whole(response, "X-RateLimit-Remaining");
  const reset = whole(response, "X-RateLimit-Reset");
  const date = Date.parse(response.headers.get("Date") ?? "");
  const left = reset === null ? 0 : Math.max(0, reset * 1000 - (Number.isNaN(date) ? Date.now() : date));
  const family = endpoints[endpoint].family;
  if (response.status === 429) {
    const until = now + Math.max(left, 1000 * (whole(response, "Retry-After") ?? 1));
    refusals.set(family, { until, message: "", language: "" });
  }
  if (limit === null || remaining === null || reset === null) return;
  for (const [name, other] of Object.entries(endpoints)) {
    const shares = other.family === family && (!budgets.has(name) || budgets.get(name).limit === limit);
    if (name === endpoint || shares) keep(name, { limit, remaining, reset, until: now + left }, now);
  }
}

// keep handles answers that arrive out of order: for one window, the lowest count and the earliest end are correct.
function keep(name, seen, now) {
  const known = budgets.get(name);
  const current = known !== undefined && known.limit === seen.limit && known.until > now;
  if (current && known.reset > seen.reset) return;
  if (current && known.reset === seen.reset) {
    seen = { ...seen, remaining: Math.min(known.remaining, seen.remaining), until: Math.min(known.until, seen.until) };
  }
  budgets.set(name, seen);
}

// holder returns the 429 that blocks requests to an endpoint, if there is one: that of its family, or, if there is no
// session yet, that of init.
function holder(endpoint) {
  const own = refusals.get(endpoints[endpoint].family);
  const first = session === null ? refusals.get("init") : undefined;
  return [own, first].filter((each) => each?.until > performance.now()).sort((a, b) => b.until - a.until)[0];
}

// held returns for how many milliseconds requests to an endpoint must wait.
function held(endpoint) {
  return (holder(endpoint)?.until ?? performance.now()) - performance.now();
}

// spent is held for background requests. It also waits while the budget is known to be used up.
function spent(endpoint) {
  const known = budgets.get(endpoint);
  const empty = known?.remaining === 0 ? known.until - performance.now() : 0;
  return Math.max(held(endpoint), empty, 0);
}

// ---- The API, and the visitor's session ----------------------------------------------------------------------------

// A Refusal is an unsuccessful answer, with the server's message if it sent one. Status 0: there was no answer.
class Refusal extends Error {
  constructor(status, message, language = "") {
    super(message);
    this.status = status;
    this.language = language;
  }
}

async function ask(endpoint, path, options) {
  const last = holder(endpoint);
  if (last) throw new Refusal(429, last.message, last.language); // without a request
  let response;
  try {
    // No cache mode, because with one browsers send a preflight before each request. The answers have no-store.
    response = await fetch(`${api}/api/v1/widget/${path}`, { credentials: "omit", ...options });
  } catch (err) {
    if (err.name === "AbortError") throw err;
    throw new Refusal(0, "The server cannot be reached.");
  }
  note(endpoint, response);
  if (response.ok) return response;
  const body = await response.json().catch(() => null);
  const message = body?.error?.message ?? `The server answered ${response.status}.`;
  const language = response.headers.get("Content-Language") ?? "";
  if (response.status === 429) Object.assign(refusals.get(endpoints[endpoint].family), { message, language });
  throw new Refusal(response.status, message, language);
}

function json(body) {
  return { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body), signal: AbortSignal.timeout(30000) };
}

let session = null; // { token, conversation_id, … }
let beginning = null; // the promise of a session that is being created

function begin() {
  beginning ??= (async () => {
    const response = await ask("init", "init", json({ agent_id: agent }));
    const renewed = feed.conversation !== "";
    session = await response.json();
    feed.conversation = session.conversation_id;
    feed.after = 0;
    if (renewed) {
      for (const name of budgets.keys()) if (name !== "init") budgets.delete(name); // they belonged to another session
      divide("The session had ended. This is a new one.");
    }
    feed.wake();
    return session;
  })().finally(() => { beginning = null; });
  return beginning;
}

// call sends the request that make returns for the session. If the session has ended, it sends it again with a new one.
async function call(endpoint, make) {
  for (let tries = 1; ; tries++) {
    const mine = session ?? await begin();
    const [path, options] = make(mine);
    const headers = { ...options.headers, Authorization: `Bearer ${mine.token}` };
    try {
      return await ask(endpoint, path, { ...options, headers });
    } catch (err) {
      if (err.status !== 401 || tries > 1) throw err;
      if (session === mine) session = null;
    }
  }
}

// ---- The event feed ------------------------------------------------------------------------------------------------

const feed = {
  conversation: "", // empty: none yet
  after: 0, // the last event seen
  streams: true, // false: a proxy on the way buffers streams, so poll instead
  retry: 2000, // milliseconds before the next try; the server can change it
  controller: null,
  wake: () => {},
};
const quiet = { first: 10000, later: 45000 }; // milliseconds of silence after which a stream counts as dead

async function follow() {
  for (let failures = 0; ;) {
    if (document.hidden) {
      tell("Paused while this tab is hidden", "");
      await woken();
      continue;
    }
    if (spent("events") > 0) {
      tell("Waiting for the budget", "");
      await pause(spent("events"));
      continue;
    }
    try {
      await (feed.streams ? stream() : poll());
      failures = 0;
    } catch (err) {
      if (document.hidden || spent("events") > 0) continue;
      failures++;
      if (err.status === 400) feed.after = 0; // the server has fewer events than this page has seen: start again
      tell(err instanceof Refusal ? err.message : "Connection lost", "");
      if (session === null && err.status >= 400 && err.status < 500 && err.status !== 429) {
        stuck(err);
        await woken(); // no such agent: a retry would not help
        continue;
      }
    }
    await Promise.race([pause(Math.min(60000, feed.retry * 2 ** failures) * (1 + Math.random() / 4)), woken()]);
  }
}

// woken waits until the tab is visible again, or until the user retries.
function woken() {
  return new Promise((done) => { feed.wake = done; });
}

// stream parses text/event-stream itself, because EventSource cannot send the session.
async function stream() {
  feed.controller = new AbortController();
  const { signal } = feed.controller;
  let heard = false;
  let silence = setTimeout(() => feed.controller.abort(), quiet.first);
  try {
    const response = await call("events", (mine) => {
      const headers = { Accept: "text/event-stream" };
      if (feed.after > 0) headers["Last-Event-ID"] = `${feed.conversation}/${feed.after}`;
      return [`events?conversation_id=${encodeURIComponent(mine.conversation_id)}`, { headers, signal }];
    });
    if (!response.body || !response.headers.get("Content-Type")?.startsWith("text/event-stream")) {
      feed.streams = false;
      await response.body?.cancel();
      return;
    }
    const read = lines(frame());
    const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
    for (let chunk = await reader.read(); !chunk.done; chunk = await reader.read()) {
      heard = true;
      clearTimeout(silence);
      silence = setTimeout(() => feed.controller.abort(), quiet.later);
      tell("Live", "live");
      read(chunk.value);
    }
    tell("Reconnecting", "");
  } catch (err) {
    if (err.name === "AbortError" && !heard && !document.hidden) feed.streams = false;
    throw err;
  } finally {
    clearTimeout(silence);
  }
}

// lines calls take for every complete line of a text that arrives in pieces.
function lines(take) {
  let rest = "";
  return (text) => {
    const all = (rest + text).split(/\r?\n/);
    rest = all.pop();
    all.forEach(take);
  };
}

// frame parses a stream's lines. An empty line ends an event. The event's number is also in its data.
function frame() {
  let data = "";
  return (line) => {
    if (line.startsWith("data:")) data += line.slice(5);
    else if (line.startsWith("retry:")) feed.retry = Math.max(1000, Number(line.slice(6)) || feed.retry);
    else if (line === "" && data !== "") {
      happened(JSON.parse(data));
      data = "";
    }
  };
}

// poll sends one request; the server waits with its answer until there is an event.
async function poll() {
  feed.controller = new AbortController();
  const signal = AbortSignal.any([feed.controller.signal, AbortSignal.timeout(quiet.later)]);
  tell("Polling", "asking");
  const response = await call("events", (mine) =>
    [`events?conversation_id=${encodeURIComponent(mine.conversation_id)}&after=${feed.after}&wait=25`, { signal }]);
  (await response.json()).items.forEach(happened);
}

function happened(event) {
  if (event.conversation_id !== undefined && event.conversation_id !== feed.conversation) return;
  feed.after = Math.max(feed.after, event.id);
  const item = document.createElement("li");
  const time = document.createElement("time");
  time.dateTime = event.created_at;
  time.textContent = new Date(event.created_at).toLocaleTimeString("en-GB");
  item.append(time, ` ${event.type}`);
  if (event.data && Object.keys(event.data).length > 0) {
    const data = document.createElement("code");
    data.textContent = JSON.stringify(event.data);
    item.append(data);
  }
  const list = part("events");
  list.prepend(item);
  while (list.children.length > 50) list.lastChild.remove();
}

function tell(text, state) {
  write(part("feed-state"), text);
  part("feed-dot").dataset.state = state;
}

document.addEventListener("visibilitychange", () => {
  if (document.hidden) {
    feed.controller?.abort();
  } else {
    feed.streams = true;
    feed.wake();
  }
});

// ---- The chat ------------------------------------------------------------------------------------------------------

const draft = part("draft");
let sending = false;

part("compose").addEventListener("submit", async (event) => {
  event.preventDefault();
  const text = draft.value;
  if (sending || text.trim() === "") return;
  if (held("messages") > 0) return announce(`Please wait ${seconds(held("messages"))}.`);
  if (document.activeElement === part("send")) draft.focus(); // a disabled button loses the focus
  sending = true;
  draw();
  try {
    const response = await call("messages", (mine) => ["messages", json({ text, conversation_id: mine.conversation_id })]);
    const { message, reply } = await response.json();
    if (draft.value.startsWith(text)) draft.value = draft.value.slice(text.length); // the user may have typed more meanwhile
    clearTimeout(stopped);
    if (typed > -Infinity) ping(false);
    part("notice").hidden = true;
    show(message, "visitor-template");
    answer(reply);
  } catch (err) {
    if (!holder("messages")) refuse(err); // otherwise draw does
  } finally {
    sending = false;
    draw();
  }
});

draft.addEventListener("keydown", (event) => {
  if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
  event.preventDefault();
  part("compose").requestSubmit();
});

function show(message, template) {
  part("hint")?.remove();
  const shown = part(template).content.firstElementChild.cloneNode(true);
  shown.querySelector(".text").textContent = message.text;
  const log = part("log");
  log.append(shown);
  log.scrollTop = log.scrollHeight;
  return shown;
}

function answer(reply) {
  const shown = show(reply, "answer-template");
  const sources = reply.sources ?? [];
  shown.querySelector(".text").classList.toggle("quoted", sources.length > 0);
  if (sources.length === 0) shown.querySelector(".sources").remove();
  for (const source of sources) {
    const item = document.createElement("li");
    item.append(link(source));
    shown.querySelector("ul").append(item);
  }
  for (const thumb of shown.querySelectorAll(".thumb")) {
    thumb.addEventListener("click", () => judge(shown, reply.id, thumb));
  }
  part("log").scrollTop = part("log").scrollHeight;
}

// link returns a source's title, as a link if its address is an http or https URL.
function link(source) {
  const web = /^https?:$/.test(URL.canParse(source.url) ? new URL(source.url).protocol : "");
  const title = document.createElement(web ? "a" : "span");
  title.textContent = source.title || source.url;
  title.dir = "auto";
  if (web) {
    title.href = source.url;
    title.target = "_blank";
    title.rel = "noopener noreferrer";
  }
  return title;
}

async function judge(shown, id, thumb) {
  const said = shown.querySelector(".said");
  const helpful = thumb.dataset.helpful === "true";
  try {
    await call("feedback", () => [`messages/${encodeURIComponent(id)}/feedback`, json({ helpful })]);
    for (const each of shown.querySelectorAll(".thumb")) each.setAttribute("aria-pressed", String(each === thumb));
    said.textContent = "Thank you.";
  } catch (err) {
    said.textContent = err.message;
    said.lang = err.language ?? "";
  }
}

function divide(text) {
  const line = document.createElement("p");
  line.className = "divider";
  line.textContent = text;
  part("log").append(line);
}

// refuse shows why a message was not answered. The draft stays where it is.
function refuse(err, more = "") {
  write(part("notice-text"), err.message);
  part("notice-text").lang = err.language ?? "";
  part("retry").hidden = true;
  const log = part("log");
  const atEnd = log.scrollTop + log.clientHeight > log.scrollHeight - 8;
  part("notice").hidden = false;
  if (atEnd) log.scrollTop = log.scrollHeight; // the notice takes some of its height
  announce(more, err);
}

// stuck is refuse for a session that cannot begin.
function stuck(err) {
  refuse(err);
  part("retry").hidden = false;
}

part("retry").addEventListener("click", () => {
  part("notice").hidden = true;
  draft.focus();
  feed.wake();
});

// announce sets the text for screen readers: first a refusal, in its language.
function announce(text, err) {
  const said = document.createElement("span");
  said.textContent = err ? `${err.message} ` : "";
  said.lang = err?.language ?? "";
  part("announcer").replaceChildren(said, text);
}

let typed = -Infinity; // when the last ping was sent
let stopped = 0; // a timer
let pinged = Promise.resolve(); // resolves when the last ping was answered

draft.addEventListener("input", () => {
  clearTimeout(stopped);
  const typing = draft.value !== "";
  if (typing) stopped = setTimeout(() => ping(false), 5000);
  if (!typing || performance.now() - typed > 3000) ping(typing);
});

// ping reports whether the visitor is typing, at most every three seconds and in order. It runs in the background.
function ping(typing) {
  typed = typing ? performance.now() : -Infinity;
  if (session === null || spent("typing") > 0) return;
  const say = () => call("typing", (mine) => ["typing", json({ typing, conversation_id: mine.conversation_id })]);
  pinged = pinged.then(say).catch(() => {});
}

// ---- The other forms -----------------------------------------------------------------------------------------------

const buttons = new Map(); // the buttons that wait for a budget, and its endpoint

function form(id, endpoint, path, read, thank) {
  const element = part(id);
  const output = element.querySelector("output");
  const button = element.querySelector("button");
  let busy = false;
  buttons.set(button, endpoint);
  element.addEventListener("submit", async (event) => {
    event.preventDefault();
    if (busy) return;
    busy = true;
    try {
      const body = read(new FormData(element));
      const response = await call(endpoint, (mine) => [path, json(body(mine))]);
      finish(output, "done", thank(await response.json()), "");
    } catch (err) {
      const again = held(endpoint) > 0 ? ` (${seconds(held(endpoint))})` : "";
      finish(output, "refused", err.message + again, err.language ?? "");
    } finally {
      busy = false;
      draw();
    }
  });
}

function finish(output, state, text, language) {
  output.dataset.state = state;
  output.lang = language;
  output.textContent = text;
}

const money = (currency) => new Intl.NumberFormat("en", { style: "currency", currency });
const digits = (currency) => money(currency).resolvedOptions().maximumFractionDigits;

form("coupon", "coupon", "coupon/apply", (data) => {
  const currency = data.get("currency").toUpperCase() || "EUR";
  const body = { code: data.get("code").trim() };
  if (data.get("total") !== "") {
    body.total = Math.round(Number(data.get("total")) * 10 ** digits(currency));
    body.currency = currency;
  }
  return () => body;
}, (won) => {
  const currency = won.currency ?? (part("currency").value.toUpperCase() || "EUR");
  const price = (minor) => money(currency).format(minor / 10 ** digits(currency));
  const worth = `${won.code}: ${won.percent ? `${won.percent} %` : price(won.amount)} off`;
  return won.discount === undefined ? `${worth}.` : `${worth}. You save ${price(won.discount)} of ${price(won.total)}.`;
});

form("rating", "satisfaction", "satisfaction", (data) => {
  const body = { score: Number(data.get("score")) };
  if (data.get("comment") !== "") body.comment = data.get("comment");
  return (mine) => ({ ...body, conversation_id: mine.conversation_id });
}, () => "Thank you for rating.");

form("lead", "leads", "leads", (data) => {
  const body = { email: data.get("email") };
  if (data.get("name") !== "") body.name = data.get("name");
  return () => body;
}, () => "Thank you. We have your address.");

// ---- Drawing -------------------------------------------------------------------------------------------------------

let waiting = null; // while the chat waits: { next }, the milliseconds left at the next announcement

// write changes an element only if its text differs.
function write(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

function seconds(ms) {
  const s = Math.ceil(ms / 1000);
  return s < 120 ? `${s} s` : `${Math.ceil(s / 60)} min`;
}

// standing returns the current state of a budget. After its reset the whole budget is left.
function standing(endpoint) {
  const known = budgets.get(endpoint);
  if (known === undefined) return { state: "unknown", limit: 0, left: 0, resets: 0 };
  const resets = Math.max(0, known.until - performance.now(), held(endpoint));
  const left = resets > 0 ? known.remaining : known.limit;
  const state = left === 0 ? "spent" : left <= known.limit / 5 ? "low" : "fine";
  return { state, limit: known.limit, left, resets };
}

function drawGauge() {
  const { state, limit, left, resets } = standing("messages");
  part("budget").dataset.state = state;
  if (state === "unknown") return;
  const text = `${left} of ${limit} left${resets > 0 ? `, full again in ${seconds(resets)}` : ""}`;
  const gauge = part("gauge");
  write(part("gauge-text"), text);
  gauge.setAttribute("aria-valuemax", limit);
  gauge.setAttribute("aria-valuenow", left);
  gauge.setAttribute("aria-valuetext", text);
  part("gauge-fill").style.width = `${limit > 0 ? (100 * left) / limit : 0}%`;
}

function drawBudgets() {
  for (const row of part("budgets").rows) {
    const { state, limit, left, resets } = standing(row.dataset.endpoint);
    row.dataset.state = state;
    const cells = state === "unknown" ? ["–", "–", "–"] : [String(limit), String(left), resets > 0 ? seconds(resets) : "–"];
    cells.forEach((text, n) => write(row.cells[n + 1], text));
  }
}

function drawWaiting() {
  const wait = held("messages");
  part("send").disabled = sending || wait > 0;
  for (const [button, endpoint] of buttons) button.setAttribute("aria-disabled", String(held(endpoint) > 0));
  write(part("countdown"), wait > 0 ? `You can send again in ${seconds(wait)}.` : "");
  if (waiting === null && wait > 0 && holder("messages").message !== "") {
    waiting = { next: wait > 20000 ? 10000 : 0 };
    refuse(holder("messages"), `You can send again in ${seconds(wait)}.`);
  } else if (waiting !== null && wait === 0) {
    waiting = null;
    part("notice").hidden = true;
    announce("You can send again.");
  } else if (waiting !== null && wait <= waiting.next) {
    waiting.next = 0;
    announce(`${seconds(wait)} left.`);
  }
}

function draw() {
  drawGauge();
  drawBudgets();
  drawWaiting();
}

for (const [name, { label }] of Object.entries(endpoints)) {
  const row = part("budgets").insertRow();
  const head = document.createElement("th");
  head.scope = "row";
  head.textContent = label;
  row.dataset.endpoint = name;
  row.append(head);
  for (let n = 0; n < 3; n++) row.insertCell();
}
part("workspace").textContent = agent;
if (api !== "") part("docs").href = `${api}/docs`;
draw();
setInterval(draw, 200);
follow();
