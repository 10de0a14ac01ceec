// pace.js before a real server, over the fetch of Node.

import assert from 'node:assert/strict';
import { once } from 'node:events';
import net from 'node:net';
import { describe, test } from 'node:test';
import { pace, WaitError } from '../pace.js';
import { limiter, sent, serve, undisturbed } from './server.js';

const path = '/v1/wp/documents';

describe('pace', { concurrency: true }, () => {
  for (const [name, offset] of /** @type {[string, number][]} */ ([['right', 0], ['ten minutes fast', 6e5], ['ten minutes slow', -6e5]])) {
    test(`with a clock that is ${name}, 40 calls through windows of 10 are all served and none is refused`, async t => {
      const found = await undisturbed(async () => {
        const { answer, counts } = limiter(10, 2), { url, slowest } = await serve(t, answer);
        const paced = pace({ now: () => Date.now() + offset })(sent);
        const all = await Promise.all(Array.from({ length: 40 }, () => paced(url + path).then(response => response.status)));
        return { found: { ...counts, statuses: new Set(all) }, slowest: slowest() };
      });
      assert.deepEqual(found, { served: 40, refused: 0, statuses: new Set([200]) });
    });
  }

  test('seconds left instead of a time: no call is refused once the first answer is there', async t => {
    const found = await undisturbed(async () => {
      const { answer, counts } = limiter(10, 2);
      const { url, slowest } = await serve(t, (request, response) => answer(request, response, (reset, now) => reset - now));
      const paced = pace()(sent);
      await paced(`${url}/search`);
      await Promise.all(Array.from({ length: 30 }, () => paced(`${url}/search`)));
      return { found: counts, slowest: slowest() };
    });
    assert.deepEqual(found, { served: 31, refused: 0 });
  });

  /** What a browser or Node sends, by kind. @type {Record<string, () => [string | undefined, RequestInit]>} */
  const bodies = {
    'a string': () => [undefined, { body: '{"text":"grüße"}' }],
    'bytes': () => [undefined, { body: new Uint8Array([0, 255, 10, 13]) }],
    'a Blob': () => [undefined, { body: new Blob(['<p>', new Uint8Array([200])], { type: 'text/html' }) }],
    'URLSearchParams': () => [undefined, { body: new URLSearchParams({ a: 'b c', d: 'ü' }) }],
    'FormData': () => {
      const body = new FormData();
      body.append('file', new Blob(['content']), 'name.txt');
      return [undefined, { body }];
    },
  };

  for (const [name, make] of Object.entries(bodies)) {
    test(`${name} is sent once more after a 429, to the byte`, async t => {
      const { url, received } = await serve(t, (_, response) => {
        response.writeHead(received.length == 1 ? 429 : 201, received.length == 1 ? { 'Retry-After': '1' } : {});
        response.end();
      });
      const [, init] = make(), paced = pace({ jitter: 0 })(fetch);
      const response = await paced(url + path, { method: 'POST', ...init });
      assert.equal(response.status, 201);
      assert.equal(received.length, 2);
      assert.ok(received[0].body.length > 0);
      assert.deepEqual(received[1].body, received[0].body);
      assert.equal(received[1].headers['content-type'], received[0].headers['content-type']);
    });
  }

  test('a Request is sent once more after a 429 too', async t => {
    const { url, received } = await serve(t, (_, response) => {
      response.writeHead(received.length == 1 ? 429 : 200, { 'Retry-After': '1' });
      response.end();
    });
    const request = new Request(url + path, { method: 'PUT', body: 'body', headers: { authorization: 'Bearer wpt_a_b' } });
    assert.equal((await pace()(fetch)(request)).status, 200);
    assert.deepEqual(received.map(one => `${one.method} ${one.body} ${one.headers.authorization}`), Array(2).fill('PUT body Bearer wpt_a_b'));
  });

  test('what is sent is what was given, even if the caller changes it while the call waits', async t => {
    const { url, received } = await serve(t, (_, response) => {
      response.writeHead(received.length == 1 ? 429 : 200, { 'Retry-After': '1' });
      response.end();
    });
    const body = new TextEncoder().encode('first'), headers = new Headers({ 'x-id': '1' });
    const paced = pace()(fetch);
    paced.addEventListener('refused', () => {
      body.fill(0);
      headers.set('x-id', '2');
    });
    await paced(url + path, { method: 'POST', body, headers });
    assert.deepEqual(received.map(one => `${one.body} ${one.headers['x-id']}`), ['first 1', 'first 1']);
  });

  test('a body that streams is sent once: its 429 goes to the caller', async t => {
    const { url, received } = await serve(t, (_, response) => {
      response.writeHead(429, { 'Retry-After': '1' });
      response.end('{"error":{}}');
    });
    const body = new Blob(['streamed']).stream();
    const response = await pace()(fetch)(url + path, /** @type {any} */ ({ method: 'POST', body, duplex: 'half' }));
    assert.equal(response.status, 429);
    assert.equal(await response.text(), '{"error":{}}');
    assert.deepEqual(received.map(one => `${one.body}`), ['streamed']);
  });

  for (const [name, headers, sent] of /** @type {[string, () => Record<string, string>, number][]} */ ([
    ['without Retry-After and without fields goes to the caller', () => ({}), 1],
    ['with garbage in Retry-After goes to the caller', () => ({ 'Retry-After': 'soon' }), 1],
    ['with an HTTP date is sent again then', () => ({ 'Retry-After': new Date(Date.now() + 1000).toUTCString() }), 3],
    ['with Retry-After 0 is sent again after a second', () => ({ 'Retry-After': '0' }), 3],
  ])) {
    test(`a 429 ${name}`, async t => {
      const { url, received } = await serve(t, (_, response) => {
        response.writeHead(429, headers());
        response.end();
      });
      const response = await pace({ retries: 2, jitter: 0 })(fetch)(url + path);
      assert.equal(response.status, 429);
      assert.equal(received.length, sent);
    });
  }

  test('a call that must not wait fails with the time to come back, and its Request can be used again', async t => {
    const { answer, counts } = limiter(1, 60), { url } = await serve(t, answer);
    const paced = pace({ maxWait: 0 })(fetch), request = new Request(url + path, { method: 'POST', body: 'kept' });
    await paced(url + path);
    await assert.rejects(paced(request), error => {
      assert.ok(error instanceof WaitError);
      assert.equal(error.reason, 'spent');
      assert.equal(error.limiter, 'wp-plugin');
      assert.equal(error.host, new URL(url).host);
      assert.ok(error.wait > 1000 && error.wait <= 61000, `wait ${error.wait}`);
      assert.match(error.message, /limiter wp-plugin of 127.*budget spent; the request is not sent.*come back at \d{4}-.*raise maxWait/);
      return error.until instanceof Date;
    });
    assert.equal(await request.text(), 'kept');
    assert.deepEqual(counts, { served: 1, refused: 0 });
  });

  test('a 429 that asks for longer than maxWait is the same error', async t => {
    const { url, received } = await serve(t, (_, response) => {
      response.writeHead(429, { 'Retry-After': '100' });
      response.end();
    });
    await assert.rejects(pace({ maxWait: 9e4 })(fetch)(url + path), { name: 'WaitError', reason: 'refused', limiter: 'wp-plugin' });
    assert.equal(received.length, 1);
  });

  test('a call that is aborted while it waits ends with the reason of its signal, and the others go on', async t => {
    const { answer, counts } = limiter(1, 2), { url } = await serve(t, answer);
    const paced = pace()(fetch), controller = new AbortController(), reason = new Error('the page was left');
    await paced(url + path);
    const first = paced(url + path, { signal: controller.signal }), second = paced(url + path);
    paced.addEventListener('waiting', () => controller.abort(reason), { once: true });
    await assert.rejects(first, error => error === reason);
    assert.equal((await second).status, 200);
    assert.deepEqual(counts, { served: 2, refused: 0 });
    await assert.rejects(paced(url, { signal: AbortSignal.abort(reason) }), error => error === reason);
  });

  test('waiting calls tell until when, once for each reason', async t => {
    const { answer } = limiter(1, 2), { url } = await serve(t, answer), paced = pace({ jitter: 0 })(fetch);
    /** @type {any[]} */
    const told = [];
    paced.addEventListener('waiting', ({ reason, limiter, host, wait, until }) => told.push({ reason, limiter, host, positive: wait > 0 && until instanceof Date }));
    await paced(url + path);
    const waiting = paced(url + path);
    for (const id of ['a', 'b', 'c']) await paced(url + path, { headers: { authorization: `Bearer wpt_${id}_secret` } }); // wakes it
    await waiting;
    assert.deepEqual(told, [{ reason: 'spent', limiter: 'wp-plugin', host: new URL(url).host, positive: true }]);
  });

  test('the budget of a request can be shown', async t => {
    const { answer } = limiter(30, 60), { url } = await serve(t, answer), paced = pace()(fetch);
    assert.equal((await paced.budget(url + path)).known, false);
    await paced(url + path);
    const { reset, ...rest } = await paced.budget(url + path);
    assert.deepEqual(rest, { known: true, limit: 30, remaining: 29, inFlight: 0, wait: 0 });
    assert.ok(+reset > Date.now());
  });

  test('after a redirect to another host the token stays home, and its fields are not booked', async t => {
    const other = await serve(t, (_, response) => {
      response.writeHead(200, { 'X-RateLimit-Limit': 10, 'X-RateLimit-Remaining': 0, 'X-RateLimit-Reset': Math.ceil(Date.now() / 1000) + 60 });
      response.end('elsewhere');
    });
    const { url, received } = await serve(t, (_, response) => {
      response.writeHead(307, { location: `http://localhost:${other.port}${path}` }); // the same path, another host
      response.end();
    });
    // localhost may be ::1 first; the server listens on 127.0.0.1, and fetch tries both
    const paced = pace({ maxWait: 0 })(fetch), init = { headers: { authorization: 'Bearer wpt_a_secret' } };
    assert.equal(await (await paced(url + path, init)).text(), 'elsewhere');
    assert.equal(received[0].headers.authorization, 'Bearer wpt_a_secret');
    assert.equal(other.received[0].headers.authorization, undefined);
    assert.equal((await paced.budget(url + path, init)).limit, 0);
  });

  for (const [name, ahead] of /** @type {[string, number][]} */ ([['in the past', -60], ['a year away', 366 * 86400]])) {
    test(`a Reset ${name} makes no call wait`, async t => {
      const { url, received } = await serve(t, (_, response) => {
        response.writeHead(200, { 'X-RateLimit-Limit': 10, 'X-RateLimit-Remaining': 0, 'X-RateLimit-Reset': Math.ceil(Date.now() / 1000) + ahead });
        response.end();
      });
      const paced = pace({ maxWait: 0 })(fetch);
      for (let i = 0; i < 4; i++) await paced(url + path);
      assert.equal(received.length, 4);
    });
  }

  test('answers without any fields make no call wait', async t => {
    const { url, received } = await serve(t, (_, response) => response.end());
    const paced = pace()(fetch);
    await Promise.all(Array.from({ length: 8 }, () => paced(url + path)));
    assert.equal(received.length, 8);
  });

  test('an error of the network is the caller\'s, and its unit is not in flight any more', async t => {
    const { url } = await serve(t, (_, response) => response.socket?.destroy());
    const paced = pace()(fetch), closed = net.createServer().listen(0);
    await once(closed, 'listening');
    await assert.rejects(paced(url + path), TypeError);
    assert.equal((await paced.budget(url + path)).inFlight, 0);
    const { port } = /** @type {net.AddressInfo} */ (closed.address());
    closed.close();
    await once(closed, 'close');
    await assert.rejects(paced(`http://127.0.0.1:${port}${path}`), TypeError);
  });

  test('an opaque response, and one of type error, are returned as they are', async () => {
    const opaque = Response.error();
    const paced = pace()(async () => opaque);
    assert.equal(await paced(`https://api.example.com${path}`), opaque);
    assert.equal(await paced(`https://api.example.com${path}`), opaque);
  });

  test('a tab that was frozen for an hour goes on with the window of then', async () => {
    let hour = 0, left = 5;
    const now = () => Date.now() + hour;
    /** @type {(() => void)[]} */
    const held = [];
    const base = async () => {
      if (hour == 0) await new Promise(resolve => held.push(() => resolve(0)));
      left--;
      const date = Math.floor(now() / 1000);
      return new Response('', { headers: {
        date: new Date(date * 1000).toUTCString(), 'x-ratelimit-limit': '10', 'x-ratelimit-remaining': `${left}`, 'x-ratelimit-reset': `${date + 60}`,
      } });
    };
    const paced = pace({ now, maxWait: 0 })(base), url = `https://api.example.com${path}`;
    const first = paced(url);
    while (!held.length) await new Promise(setImmediate);
    hour = 36e5;
    held[0]();
    await first;
    for (let i = 0; i < 3; i++) await paced(url);
    assert.equal(left, 1);
    await assert.rejects(async () => { await paced(url); await paced(url); }, WaitError);
  });

  test('where tabs cannot share, that is told once, and the calls are paced all the same', async t => {
    const { answer, counts } = limiter(5, 60), { url } = await serve(t, answer), paced = pace()(fetch);
    /** @type {string[]} */
    const told = [];
    paced.addEventListener('alone', ({ reason }) => told.push(String(reason)));
    await Promise.all(Array.from({ length: 5 }, () => paced(url + path)));
    assert.equal(counts.refused, 0);
    assert.equal(told.length, 1);
    assert.match(told[0], /no Web Locks.*secure origin/);
  });

  test('calls of one budget start in the order in which they came', async t => {
    /** @type {(string | undefined)[]} */
    const started = [];
    const { answer } = limiter(2, 2), { url } = await serve(t, answer), paced = pace({ jitter: 0 })(request => {
      const id = new Request(request).url.at(-1);
      if (!started.includes(id)) started.push(id); // on a busy machine one may be refused, and sent again
      return fetch(request);
    });
    await Promise.all([1, 2, 3, 4, 5].map(async i => paced(`${url}${path}/${i}`)));
    assert.deepEqual(started, ['1', '2', '3', '4', '5']);
  });

  test('routes of one\'s own declare which requests share a budget', async t => {
    const { answer, counts } = limiter(3, 60), { url } = await serve(t, answer);
    const paced = pace({ routes: [{ name: 'search', routes: ['GET /search*'], windows: ['3 per minute by header:X-Team'], cost: 1 }], maxWait: 0, threshold: 0 })(fetch);
    for (let i = 0; i < 3; i++) await paced(`${url}/search?q=${i}`, { headers: { 'x-team': 'a' } });
    await assert.rejects(paced(`${url}/search/more`, { headers: { 'x-team': 'a' } }), { name: 'WaitError', limiter: 'search' });
    assert.deepEqual(counts, { served: 3, refused: 0 });
  });

  test('calls that would certainly wait longer than maxWait fail at once, and only those', async t => {
    const { answer } = limiter(10, 60), { url } = await serve(t, answer);
    const paced = pace({ maxWait: 9e4, threshold: 0 })(fetch), controller = new AbortController();
    await paced(url + path);
    // 9 are left of this window, and 10 are in the next; those after it would wait two minutes
    const all = Array.from({ length: 25 }, () => paced(url + path, { signal: controller.signal }).then(response => response.status, error => error));
    const late = await Promise.all(all.slice(19));
    assert.deepEqual(late.map(error => error.name), Array(6).fill('WaitError'));
    assert.deepEqual(new Set(await Promise.all(all.slice(0, 9))), new Set([200]));
    const reason = new Error('the test is over');
    controller.abort(reason);
    assert.deepEqual(await Promise.all(all.slice(9, 19)), Array(10).fill(reason));
  });

  test('another credential has a budget of its own, and does not wait', async t => {
    const { answer, counts } = limiter(1, 60), { url } = await serve(t, answer), paced = pace({ maxWait: 0 })(fetch);
    const as = (/** @type {string} */ id) => paced(url + path, { headers: { authorization: `Bearer wpt_${id}_secret` } });
    await as('a');
    await assert.rejects(as('a'), WaitError);
    await as('b');
    assert.deepEqual(counts, { served: 2, refused: 0 });
  });

  test('two limits under one credential do not block each other, without routes', async t => {
    const { url, received } = await serve(t, (request, response) => {
      const search = request.url.startsWith('/search');
      response.writeHead(200, {
        'X-RateLimit-Limit': search ? 30 : 5000, 'X-RateLimit-Remaining': search ? 0 : 4000, 'X-RateLimit-Reset': Math.ceil(Date.now() / 1000) + (search ? 60 : 3000),
      });
      response.end();
    });
    const paced = pace({ maxWait: 0 })(fetch);
    await paced(`${url}/items/1`);
    await paced(`${url}/search`);
    await assert.rejects(paced(`${url}/search?page=2`), WaitError);
    await paced(`${url}/items/2`);
    assert.equal(received.length, 3);
  });

  test('after so many retries the 429 is returned, and each is told', async t => {
    const { url, received } = await serve(t, (_, response) => response.writeHead(429, { 'Retry-After': '1' }).end());
    const paced = pace({ retries: 1, jitter: 0 })(fetch);
    /** @type {any[]} */
    const told = [];
    paced.addEventListener('refused', ({ attempt, retryAfter, again, limiter }) => told.push([attempt, retryAfter, again, limiter]));
    assert.equal((await paced(url + path)).status, 429);
    assert.equal(received.length, 2);
    assert.deepEqual(told, [[1, 1000, true, 'wp-plugin'], [2, 1000, false, 'wp-plugin']]);
  });
});
