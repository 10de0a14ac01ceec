// Tabs of one session, paced by the client for JavaScript: each call waits until there is budget for it.

import { pace } from "./pace/pace.js";

const api = new URL("../api/v1/widget/", import.meta.url);
const part = (id) => document.getElementById(id);
const paced = pace()(fetch);
const counts = { called: 0, served: 0, failed: 0, refused: 0 };

paced.addEventListener("waiting", ({ until, reason }) => {
  const why = { spent: "the budget is spent", refused: "the server asked to wait", probing: "another call asks what is left" }[reason];
  part("waiting").textContent = `Waiting until ${until.toLocaleTimeString("en-GB")}: ${why}.`;
});
paced.addEventListener("refused", () => count("refused"));
paced.addEventListener("alone", ({ reason }) => {
  part("waiting").textContent = `This tab does not share with others: ${reason.message ?? reason}.`;
});

function count(name) {
  counts[name]++;
  part(name).textContent = counts[name];
}

// session returns the session that all tabs use. The first that needs one begins it.
async function session(ended) {
  const stored = localStorage.getItem("weir-demo-session");
  if (stored && stored !== ended) return stored;
  const begin = async () => {
    const now = localStorage.getItem("weir-demo-session");
    if (now && now !== ended) return now; // another tab was quicker
    const response = await paced(new URL("init", api), {
      method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify({ agent_id: "demo" }),
    });
    if (!response.ok) throw new Error(`no session: status ${response.status}`);
    const { token } = await response.json();
    localStorage.setItem("weir-demo-session", token);
    return token;
  };
  return navigator.locks ? navigator.locks.request("weir-demo-session", begin) : begin();
}

const listed = new URL("conversations?limit=1", api);
const as = (token) => ({ headers: { Authorization: `Bearer ${token}` } });

async function send() {
  count("called");
  try {
    let token = await session();
    let response = await paced(listed, as(token));
    if (response.status === 401) response = await paced(listed, as(token = await session(token)));
    count(response.ok ? "served" : "failed");
  } catch {
    count("failed");
  }
}

part("send").addEventListener("submit", async (event) => {
  event.preventDefault();
  await Promise.all(Array.from({ length: Number(part("count").value) }, send));
  part("waiting").textContent = "All calls have been answered.";
});

async function draw() {
  const token = localStorage.getItem("weir-demo-session");
  const { known, limit, remaining, reset } = token ? await paced.budget(listed, as(token)) : { known: false };
  part("budget").dataset.state = !known ? "unknown" : remaining === 0 ? "spent" : remaining <= limit / 5 ? "low" : "fine";
  if (known) {
    const text = `${remaining} of ${limit} left, full again in ${Math.ceil((reset - Date.now()) / 1000)} s`;
    part("gauge-text").textContent = text;
    part("gauge").setAttribute("aria-valuemax", limit);
    part("gauge").setAttribute("aria-valuenow", remaining);
    part("gauge").setAttribute("aria-valuetext", text);
    part("gauge-fill").style.width = `${(100 * remaining) / limit}%`;
  }
  setTimeout(draw, 250);
}

draw();
