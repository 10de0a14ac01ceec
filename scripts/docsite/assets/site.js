// The search, without a server: the index is a script that is loaded when someone searches.
const root = document.currentScript.dataset.root;
const box = document.querySelector(".search");
const input = box.querySelector("input");
const list = box.querySelector("ul");
let chosen = -1;

const wide = matchMedia("(min-width: 60rem)");
const pages = document.querySelector(".pages");
const unfold = () => { pages.open = wide.matches; };
unfold();
wide.addEventListener("change", unfold);
const current = document.querySelector("nav [aria-current]");
if (current) pages.scrollTop = current.offsetTop - pages.clientHeight / 2;

box.hidden = false;
let loading; // once, for all that is typed meanwhile
const loaded = () => loading ??= new Promise((done, failed) => {
  const script = document.createElement("script");
  script.src = root + "search-index.js";
  script.onload = done;
  script.onerror = failed;
  document.head.append(script);
});

const termsOf = (text) => text.toLowerCase().split(/[^\p{L}\p{N}_.:-]+/u).map((t) => t.replace(/^[-.:]+|[-.:]+$/g, "")).filter(Boolean);

// rank returns how well a place fits: 0 if it lacks a term.
function rank(place, terms) {
  const title = termsOf(place.t), page = termsOf(place.p), words = " " + place.w;
  let sum = 0;
  for (const term of terms) {
    const points = title.includes(term) ? 12 : title.some((w) => w.startsWith(term)) ? 8
      : page.includes(term) ? 6 : (words + " ").includes(" " + term + " ") ? 3 : words.includes(" " + term) ? 2 : 0;
    if (points === 0) return 0;
    sum += points;
  }
  if (title.join(" ") === terms.join(" ")) sum += 20;
  if (!place.u.includes("#")) sum += 2;
  if (place.u.startsWith("adr/")) sum /= 2;
  if (place.u.startsWith("commands/")) sum *= 0.7; // a flag is found by its name
  return sum;
}

async function search() {
  await loaded();
  const terms = termsOf(input.value); // what is typed by now
  const found = terms.length === 0 ? [] : window.places.map((place) => ({ place, points: rank(place, terms) }))
    .filter((f) => f.points > 0).sort((a, b) => b.points - a.points).slice(0, 12);
  list.replaceChildren(...found.map(({ place }, i) => {
    const item = document.createElement("li"), link = document.createElement("a");
    item.id = "found" + i;
    item.role = "option";
    link.href = root + place.u;
    link.tabIndex = -1;
    for (const [kind, text] of [["strong", place.t], ["small", place.t === place.p ? "" : place.p], ["span", place.b]]) {
      if (text) link.append(Object.assign(document.createElement(kind), { textContent: text }));
    }
    item.append(link);
    return item;
  }));
  if (terms.length > 0 && found.length === 0) {
    list.append(Object.assign(document.createElement("li"), { className: "none", textContent: "No page has all of these words." }));
  }
  list.hidden = terms.length === 0;
  input.setAttribute("aria-expanded", String(!list.hidden));
  choose(found.length > 0 ? 0 : -1);
}

function choose(i) {
  chosen = i;
  [...list.children].forEach((item, n) => item.setAttribute("aria-selected", String(n === i)));
  list.children[i]?.scrollIntoView({ block: "nearest" });
  if (i >= 0) input.setAttribute("aria-activedescendant", "found" + i);
  else input.removeAttribute("aria-activedescendant");
}

function close() {
  list.hidden = true;
  input.setAttribute("aria-expanded", "false");
}

input.addEventListener("input", search);
input.addEventListener("focus", () => { loaded(); if (input.value) search(); });
input.addEventListener("keydown", (e) => {
  const n = list.querySelectorAll("a").length;
  if (e.key === "ArrowDown" && n) choose((chosen + 1) % n);
  else if (e.key === "ArrowUp" && n) choose((chosen + n - 1) % n);
  else if (e.key === "Enter" && chosen >= 0) { list.children[chosen].querySelector("a").click(); close(); }
  else if (e.key === "Escape") { close(); input.blur(); }
  else return;
  e.preventDefault();
});
document.addEventListener("click", (e) => { if (!box.contains(e.target)) close(); });
document.addEventListener("keydown", (e) => {
  if (e.key === "/" && !/input|textarea/i.test(document.activeElement.tagName) && !e.ctrlKey && !e.metaKey) { e.preventDefault(); input.focus(); }
});

// index.html?q=WORDS begins with a search.
const asked = new URLSearchParams(location.search).get("q");
if (asked) { input.value = asked; input.focus(); }

// A block of commands is copied without its prompts and without what the commands print.
for (const pre of navigator.clipboard ? document.querySelectorAll("main pre") : []) {
  const button = Object.assign(document.createElement("button"), { type: "button", textContent: "Copy" });
  button.addEventListener("click", async () => {
    const commands = [...pre.querySelectorAll("b")].map((b) => b.textContent).join("\n");
    await navigator.clipboard.writeText(commands || pre.querySelector("code").textContent);
    button.textContent = "Copied";
    setTimeout(() => { button.textContent = "Copy"; }, 1500);
  });
  const frame = Object.assign(document.createElement("div"), { className: "block" });
  pre.replaceWith(frame);
  frame.append(pre, button);
}
