// pace.js when callers, listeners, clocks and the fetch below it misbehave. No test waits for a window.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { revive } from '../budget.js';
import { read } from '../dialects.js';
import { pace, WaitError } from '../pace.js';

let hosts = 0;
/** A URL of a host that no other test has. */
const fresh = () => `https://api${++hosts}.example.com/v1/wp/documents`;

/**
 * An answer of a window that ends a minute from now.
 * @param {number} remaining
 * @param {number} [status]
 */
const stating = (remaining, status = 200) => {
  const now = Math.floor(Date.now() / 1000);
  return new Response('', { status, headers: {
    date: new Date(now * 1000).toUTCString(), 'x-ratelimit-limit': '60', 'x-ratelimit-remaining': `${remaining}`, 'x-ratelimit-reset': `${now + 60}`,
    ...status == 429 ? { 'retry-after': '60' } : {},
  } });
};

/** Lets everything run that does not wait for a timer. */
const settled = async () => {
  for (let i = 0; i < 20; i++) await new Promise(setImmediate);
};

test('a call that is aborted just before it sleeps ends at once', async t => {
  t.mock.timers.enable({ apis: ['setTimeout'] }); // so that no timer ends a wait
  const url = fresh(), paced = pace()(async () => stating(0)), reason = new Error('the page was left');
  await paced(url);
  const controller = new AbortController();
  paced.addEventListener('waiting', () => controller.abort(reason)); // told between asking and sleeping
  /** @type {unknown} */
  let error;
  paced(url, { signal: controller.signal }).catch(caught => error = caught);
  await settled();
  assert.equal(error, reason);
});

test('a call that is aborted while it asks for its slot is not sent', async () => {
  const url = fresh(), reason = new Error('the page was left');
  let late = 0;
  const paced = pace()(async ({ signal }) => {
    if (signal.aborted) late++;
    signal.throwIfAborted();
    return stating(50);
  });
  await paced(url);
  for (let ticks = 0; ticks < 40; ticks++) {
    const controller = new AbortController(), call = paced(url, { signal: controller.signal }).catch(error => error);
    for (let i = 0; i < ticks; i++) await null;
    controller.abort(reason);
    await call;
  }
  assert.equal(late, 0);
  assert.equal((await paced.budget(url)).inFlight, 0);
});

test('a call that is aborted when it is refused ends at once', async t => {
  t.mock.timers.enable({ apis: ['setTimeout'] });
  const paced = pace()(async () => stating(0, 429)), controller = new AbortController(), reason = new Error('the page was left');
  paced.addEventListener('refused', () => controller.abort(reason));
  /** @type {unknown} */
  let error;
  paced(fresh(), { signal: controller.signal }).catch(caught => error = caught);
  await settled();
  assert.equal(error, reason);
});

for (const [name, answer] of /** @type {[string, any][]} */ ([
  ['nothing', undefined], ['no headers', {}], ['a URL that is none', { status: 200, headers: new Headers(), redirected: true, url: 'x' }],
])) {
  test(`a fetch that returns ${name} leaves no slot in flight`, async () => {
    const url = fresh(), paced = pace()(async () => answer);
    await assert.rejects(paced(url), TypeError);
    assert.equal((await paced.budget(url)).inFlight, 0);
  });
}

test('a fetch that throws at once leaves no slot in flight', async () => {
  const url = fresh(), paced = pace()(() => { throw new RangeError('no'); });
  await assert.rejects(paced(url), RangeError);
  assert.equal((await paced.budget(url)).inFlight, 0);
});

test('a Request whose body is used is not sent, and not counted', async () => {
  const url = fresh();
  let left = 60;
  const paced = pace()(async () => stating(--left)), used = new Request(url, { method: 'POST', body: 'x' });
  await paced(url);
  await used.text();
  await assert.rejects(paced(used), TypeError);
  assert.equal(left, 59);
  assert.equal((await paced.budget(url)).inFlight, 0);
});

test('all paced fetches of a page share each budget, and start in the order of their calls', async () => {
  const url = fresh(), sent = /** @type {string[]} */ ([]);
  let left = 60;
  const base = (/** @type {string} */ name) => pace({ maxWait: 0, threshold: 0 })(async () => {
    sent.push(name);
    return stating(sent.length < 3 ? --left : 0);
  });
  const one = base('one'), two = base('two');
  await one(url);
  assert.equal((await two.budget(url)).remaining, 59);
  await two(url);
  await one(url);
  await assert.rejects(two(url), WaitError);
  await assert.rejects(one(url), WaitError);
  assert.deepEqual(sent, ['one', 'two', 'one']);
});

test('calls that never wait start together as long as there is budget', async () => {
  const url = fresh();
  let left = 60;
  const paced = pace({ maxWait: 0 })(async () => stating(--left));
  await paced(url);
  const all = await Promise.all(Array.from({ length: 9 }, () => paced(url).then(response => response.status, error => error.message)));
  assert.deepEqual(new Set(all), new Set([200]));
});

test('a call that never waits does not wait behind one that does', async () => {
  const url = fresh(), base = async () => stating(5), controller = new AbortController();
  const patient = pace({ threshold: 6 })(base), hasty = pace({ maxWait: 0, threshold: 0 })(base);
  await patient(url);
  const waiting = patient(url, { signal: controller.signal }).catch(() => {}), both = [hasty(url), hasty(url)];
  for (const one of both) await assert.rejects(one, WaitError);
  controller.abort();
  await waiting;
  await hasty(url);
});

test('each of them keeps its own threshold, also without routes', async () => {
  const url = fresh().replace('/v1/wp/', '/items/');
  const base = async () => stating(3), careful = pace({ maxWait: 0, threshold: 10 })(base), greedy = pace({ maxWait: 0, threshold: 0 })(base);
  await careful(url);
  await assert.rejects(careful(url), WaitError);
  await greedy(url);
});

test('each of them is told that it is alone', async () => {
  const url = fresh(), told = /** @type {string[]} */ ([]);
  for (const name of ['one', 'two']) {
    const paced = pace()(async () => stating(50));
    paced.addEventListener('alone', () => told.push(name));
    await paced(url);
    await paced(url);
  }
  assert.deepEqual(told, ['one', 'two']);
});

test('a listener that throws disturbs no call', async t => {
  const uncaught = t.mock.fn(), before = process.listeners('uncaughtException');
  process.removeAllListeners('uncaughtException');
  process.on('uncaughtException', uncaught);
  t.after(() => {
    process.removeListener('uncaughtException', uncaught);
    for (const listener of before) process.on('uncaughtException', listener);
  });
  const url = fresh(), paced = pace()(async () => stating(50));
  paced.addEventListener('alone', () => { throw Error('the listener'); });
  assert.equal((await paced(url)).status, 200);
  await settled();
  assert.equal(uncaught.mock.callCount(), 1);
  assert.equal((await paced.budget(url)).inFlight, 0);
});

test('credentials in different fields are different', async () => {
  const url = fresh().replace('/v1/wp/', '/items/'), base = async () => stating(0);
  const a = pace({ maxWait: 0, credentials: ['x-a'] })(base), b = pace({ maxWait: 0, credentials: ['x-b'] })(base);
  await a(url, { headers: { 'x-a': 'same' } });
  await assert.rejects(a(url, { headers: { 'x-a': 'same' } }), WaitError);
  await b(url, { headers: { 'x-b': 'same' } });
});

test('a refusal that becomes a WaitError is not told as sent again', async () => {
  const paced = pace({ maxWait: 1000 })(async () => stating(0, 429)), told = /** @type {boolean[]} */ ([]);
  paced.addEventListener('refused', ({ again }) => told.push(again));
  await assert.rejects(paced(fresh()), WaitError);
  assert.deepEqual(told, [false]);
});

test('a clock that is set forward while calls wait does not end their waits with an error', async t => {
  t.mock.timers.enable({ apis: ['setTimeout'] });
  const url = fresh();
  let ahead = 0, sent = 0, error;
  const paced = pace({ now: () => Date.now() + ahead, retries: 0 })(() => sent++ ? new Promise(() => {}) : Promise.resolve(stating(0)));
  await paced(url);
  const controller = new AbortController();
  paced(url, { signal: controller.signal }).catch(() => {});
  for (let i = 0; i < 3; i++) paced(url).catch(caught => error = caught);
  await settled();
  ahead = 36e5;
  controller.abort(); // the others move up: one starts, the rest ask how long they have to wait
  await settled();
  assert.equal(error, undefined);
  assert.equal(sent, 2);
});

for (const [name, flight] of /** @type {[string, any][]} */ ([['null', null], ['no numbers', { tab: 'a', at: 0 }], ['no tab', { at: 0, units: 1, taken: 0, waiting: 0 }]])) {
  test(`a stored state with a flight of ${name} is forgotten`, () => {
    const now = Date.now(), state = { ...revive(undefined, 60, now) };
    assert.equal(revive({ ...state, limit: 7 }, 60, now).limit, 7);
    assert.equal(revive({ ...state, limit: 7, flights: [flight] }, 60, now).limit, 0);
    assert.equal(revive(/** @type {any} */ ({ ...state, limit: 7, phase: 3 }), 60, now).limit, 0);
  });
}

for (const name of ['constructor', '__proto__', 'toString']) {
  test(`a budget may be named ${name}`, () => {
    const headers = new Headers({ ratelimit: `"${name}";r=3;t=30`, 'ratelimit-policy': `"${name}";q=10` });
    const { fields } = read({ headers, status: 200 });
    assert.deepEqual([fields?.name, fields?.limit, fields?.remaining], [name, 10, 3]);
  });
}

test('a body of JSON that streams does not hold its call back', async () => {
  const url = fresh().replace('/v1/wp/documents', '/api/v1/widget/init');
  let sent = 0;
  const paced = pace()(async () => {
    sent++;
    return stating(50);
  });
  const body = new ReadableStream({}), headers = { 'content-type': 'application/json' }; // it never ends
  await Promise.race([paced(url, /** @type {any} */ ({ method: 'POST', body, headers, duplex: 'half' })), settled()]);
  assert.equal(sent, 1);
});

test('a refusal whose body is no stream of the web is sent again all the same', async t => {
  t.mock.timers.enable({ apis: ['setTimeout'] });
  const paced = pace()(async () => {
    const { status, headers } = stating(0, 429);
    return /** @type {any} */ ({ status, headers, redirected: false, body: {} });
  });
  let error;
  paced(fresh()).catch(caught => error = caught);
  await settled();
  assert.equal(error, undefined);
});

test('500 waiting calls can all be aborted, and nothing is left in flight', async () => {
  const url = fresh(), controller = new AbortController(), reason = new Error('enough');
  const paced = pace()(async () => stating(0));
  await paced(url);
  const all = Array.from({ length: 500 }, () => paced(url, { method: 'POST', body: 'x', signal: controller.signal }).catch(error => error));
  await settled();
  controller.abort(reason);
  assert.deepEqual(new Set(await Promise.all(all)), new Set([reason]));
  const { inFlight, known } = await paced.budget(url);
  assert.deepEqual({ inFlight, known }, { inFlight: 0, known: true });
});
