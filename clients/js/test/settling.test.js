// What comes back after answers, and slots: the worlds of pacer/settling_test.go. The server is in
// this process, and time is simulated.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { pace, WaitError } from '../pace.js';

/** @typedef {import('../types.js').Limiter} Limiter */

const reserve = 4000, url = 'https://api.example.com/v1/chat';

/** @param {string} window @returns {Limiter} */
const chat = window => ({ name: 'chat', routes: ['/v1/chat'], windows: [window], cost: { reserve, from: 'json:cost' } });

/** @param {string} inFlight @returns {Limiter} */
const slots = inFlight => ({ name: 'chat', routes: ['/v1/chat'], windows: ['100000 requests per day by ip'], in_flight: inFlight });

const pass = (/** @type {number} */ ms) => new Promise(resolve => setTimeout(resolve, ms));

/**
 * A server that reserves, and settles when its answer has ended, or so long before, or with its head.
 * @param {{ limit: number, seconds: number, cost: (call: number) => number, lasts?: (call: number) => number, early?: number, reserves?: number, inHead?: boolean }} how
 */
const world = ({ limit, seconds, cost, lasts = () => 1000, early = 0, reserves = reserve, inHead = false }) => {
  const counts = { served: 0, refused: 0, inFlight: 0, most: 0 };
  let left = limit, reset = 0;
  const base = async (/** @type {Request} */ request) => {
    await pass(1);
    const now = Math.floor(Date.now() / 1000);
    if (now >= reset) [left, reset] = [limit, now + seconds];
    const headers = { date: new Date(now * 1000).toUTCString(), 'x-ratelimit-limit': `${limit}`, 'x-ratelimit-reset': `${reset}` };
    if (left < reserves) {
      counts.refused++;
      return new Response('', { status: 429, headers: { ...headers, 'x-ratelimit-remaining': '0', 'retry-after': `${reset - now}` } });
    }
    left -= reserves;
    counts.most = Math.max(counts.most, ++counts.inFlight);
    const call = counts.served++, window = reset;
    let open = true;
    const settle = () => {
      if (open && window == reset) left += reserves - cost(call);
      open = false;
    };
    if (inHead) settle();
    const over = () => {
      settle();
      counts.inFlight--;
    };
    const body = new ReadableStream({
      async start(controller) {
        request.signal.addEventListener('abort', () => {
          over();
          controller.error(request.signal.reason);
        });
        await pass(lasts(call) - early);
        settle();
        await pass(early);
        if (request.signal.aborted) return;
        controller.enqueue(new TextEncoder().encode('answer'));
        over();
        controller.close();
      },
    });
    return new Response(body, { headers: { ...headers, 'x-ratelimit-remaining': `${left}` } });
  };
  return { base, counts };
};

/** @template T @param {import('node:test').TestContext} t @param {() => Promise<T>} run */
const simulated = async (t, run) => {
  t.mock.timers.enable({ apis: ['setTimeout', 'Date'], now: 18e11 });
  let over = false;
  const result = run().finally(() => over = true);
  for (let i = 0; !over && i < 2e6; i++) {
    await new Promise(setImmediate);
    if (i % 4 == 3) t.mock.timers.tick(5);
  }
  return result;
};

/** Makes n calls by some workers. Returns how long they took. @param {import('../types.js').Paced} paced @param {number} n @param {number} workers */
const calls = async (paced, n, workers) => {
  const began = Date.now();
  await Promise.all(Array.from({ length: workers }, async () => {
    while (n-- > 0) {
      const response = await paced(url, { method: 'POST' });
      assert.deepEqual([response.status, await response.text()], [200, 'answer']);
    }
  }));
  return Date.now() - began;
};

/** @param {Limiter} limiter @param {import('../types.js').Options} [options] */
const routed = (limiter, options) => pace({ routes: [limiter], now: () => Date.now(), ...options });

const alike = (/** @type {number} */ call) => 80 + call % 5 * 10;

test('what comes back is used before the Reset', async t => {
  const { base, counts } = world({ limit: 100000, seconds: 86400, cost: alike });
  const took = await simulated(t, () => calls(routed(chat('100000 per day by ip'))(base), 500, 20));
  assert.deepEqual([counts.served, counts.refused], [500, 0]);
  assert.ok(took < 6e5, `500 calls took ${took} ms: their units fit the day, so none waits for its end`);
});

test('calls in the queue wait for what the calls ahead give back', async t => {
  const { base, counts } = world({ limit: 14000, seconds: 86400, cost: () => 100 });
  const took = await simulated(t, () => calls(routed(chat('14000 per day by ip'))(base), 20, 20));
  assert.deepEqual([counts.served, counts.refused, counts.most], [20, 0, 3]);
  assert.ok(took < 6e4, `20 calls of a second, 3 at a time, took ${took} ms`);
});

test('what a response includes is not expected again', async t => {
  const lasts = (/** @type {number} */ call) => 1000 + call * 37 % 100 * 10;
  const { base, counts } = world({ limit: 40000, seconds: 86400, cost: alike, lasts, early: 300 });
  await simulated(t, () => calls(routed(chat('40000 per day by ip'))(base), 200, 20));
  assert.deepEqual([counts.served, counts.refused], [200, 0]);
});

test('calls that keep their charge wait for the Reset', async t => {
  const { base, counts } = world({ limit: 100000, seconds: 60, cost: () => reserve });
  const took = await simulated(t, () => calls(routed(chat('100000 per minute by ip'))(base), 75, 20));
  assert.equal(counts.served, 75);
  assert.ok(counts.refused <= 1, `${counts.refused} refusals`); // the first calls can be expected to give something back
  assert.ok(took < 18e4, `75 calls of 25 a minute took ${took} ms`);
});

test('never more calls are in flight than the routes allow', async t => {
  const { base, counts } = world({ limit: 100000, seconds: 86400, cost: () => 1, reserves: 1 });
  const took = await simulated(t, () => calls(routed(slots('10 by ip'))(base), 200, 64));
  assert.deepEqual([counts.served, counts.refused, counts.most], [200, 0, 10]);
  assert.ok(took < 25e3, `200 calls of a second, 10 at a time, took ${took} ms`);
});

test('a call that gets no slot fails in time, and gets one when the first has ended', async t => {
  const { base } = world({ limit: 100000, seconds: 86400, cost: () => 1, reserves: 1, lasts: () => 5000 });
  await simulated(t, async () => {
    const now = () => Date.now(), paced = routed(slots('1 by ip'), { now })(base);
    const first = await paced(url);
    await assert.rejects(routed(slots('1 by ip'), { now, maxWait: 0 })(base)(url), error => error instanceof WaitError && error.reason == 'slots');
    await first.text();
    assert.equal((await paced(url)).status, 200);
  });
});

test('a call that is aborted or whose body is cancelled gives its slot back', async t => {
  const { base } = world({ limit: 100000, seconds: 86400, cost: () => 1, reserves: 1, lasts: () => 5000 });
  await simulated(t, async () => {
    const paced = routed(slots('1 by ip'), { maxWait: 0 })(base), stop = new AbortController();
    await paced(url, { signal: stop.signal });
    stop.abort();
    const second = await paced(url);
    await second.body?.cancel();
    assert.equal((await paced(url)).status, 200);
  });
});

test('an answer that nobody reads gives its slot back when it has ended', async t => {
  const { base, counts } = world({ limit: 100000, seconds: 86400, cost: () => 1, reserves: 1 });
  await simulated(t, async () => {
    const paced = routed(slots('2 by ip'))(base);
    for (let i = 0; i < 6; i++) await paced(url);
  });
  assert.deepEqual([counts.served, counts.most], [6, 2]);
});

test('a call that waits for its budget holds no slot', async t => {
  /** @type {Limiter} */
  const limiter = { name: 'chat', routes: ['/v1/chat'], windows: ['1 per minute by header:X-Team'], in_flight: '1 by ip' };
  const began = { a: 0, b: 0 }, counts = { inFlight: 0, most: 0, refused: 0 };
  /** @type {Map<string, number>} */
  const resets = new Map();
  const base = async (/** @type {Request} */ request) => {
    const team = request.headers.get('x-team') ?? '', now = Math.floor(Date.now() / 1000), spent = now < (resets.get(team) ?? 0);
    if (!spent) resets.set(team, now + 60);
    const headers = { date: new Date(now * 1000).toUTCString(), 'x-ratelimit-limit': '1', 'x-ratelimit-remaining': '0', 'x-ratelimit-reset': `${resets.get(team)}` };
    if (spent) return counts.refused++, new Response('', { status: 429, headers: { ...headers, 'retry-after': '60' } });
    counts.most = Math.max(counts.most, ++counts.inFlight);
    await pass(1000);
    counts.inFlight--;
    return new Response('answer', { headers });
  };
  await simulated(t, async () => {
    const paced = routed(limiter, { maxWait: 864e5 })(base), start = Date.now();
    const call = async (/** @type {'a' | 'b'} */ team) => {
      const response = await paced(url, { headers: { 'X-Team': team } });
      assert.equal(await response.text(), 'answer');
      began[team] = Date.now() - start;
    };
    await call('a');
    const waiting = [call('a'), call('a')]; // the first of the line, and one behind it
    await pass(5000);
    await call('b');
    assert.ok(began.b < 1e4, `a call with budget waited ${began.b} ms`);
    await Promise.all(waiting);
    assert.ok(began.a >= 12e4, `the last call has budget after two minutes, not ${began.a} ms`);
  });
  assert.deepEqual([counts.most, counts.refused], [1, 0]);
});

test('a call that is aborted in the queue for a slot leaves it to the next', async t => {
  const { base, counts } = world({ limit: 100000, seconds: 86400, cost: () => 1, reserves: 1, lasts: () => 5000 });
  await simulated(t, async () => {
    const paced = routed(slots('1 by ip'))(base), stops = [0, 1, 2].map(() => new AbortController());
    const first = await paced(url);
    const waiting = stops.map(stop => paced(url, { signal: stop.signal }).then(response => response.text(), error => error.name));
    await pass(100);
    stops[1].abort(); // in the middle
    stops[0].abort(); // and the first of the queue
    await first.text();
    assert.deepEqual(await Promise.all(waiting), ['AbortError', 'AbortError', 'answer']);
    const last = new AbortController(), none = paced(url, { signal: last.signal }).then(() => 'served', error => error.name);
    last.abort(); // at the moment in which it would start
    assert.equal(await none, 'AbortError');
    assert.equal(await (await paced(url)).text(), 'answer');
  });
  assert.deepEqual([counts.served, counts.most], [3, 1]);
});

test('what the head of an answer includes is not expected to come back again', async t => {
  for (const from of ['header:X-Cost', undefined]) { // by the status
    const limiter = { ...chat('9000 per 10 seconds by ip'), cost: from ? { reserve, from } : reserve, ...!from && { count: { status: [401] } } };
    const { base, counts } = world({ limit: 9000, seconds: 10, cost: call => call * 1237 % (reserve + 1), inHead: true });
    await simulated(t, () => calls(routed(/** @type {any} */ (limiter), { threshold: 0 })(base), 40, 6));
    t.mock.timers.reset();
    assert.deepEqual([counts.served, counts.refused], [40, 0], from);
  }
});

test('calls that are refused for what they expect are sent in the end', async t => {
  const { base, counts } = world({ limit: 4002, seconds: 120, cost: call => call * 100 });
  await simulated(t, () => calls(routed(chat('4002 per 2 minutes by ip'), { threshold: 0, maxWait: 864e5 })(base), 14, 2));
  assert.ok(counts.served == 14 && counts.refused <= 6, `${counts.served} served, ${counts.refused} refused`);
});

test('what no window has shown again is doubted', async t => {
  const { base, counts } = world({ limit: 4464, seconds: 10, cost: call => call < 3 ? reserve : 80, lasts: () => 1 });
  const took = await simulated(t, () => calls(routed(chat('4464 per 10 seconds by ip'), { threshold: 0 })(base), 150, 1));
  assert.equal(counts.served, 150);
  assert.ok(took < 7e5, `150 calls, of which six fit into a window, took ${took} ms`);
});
