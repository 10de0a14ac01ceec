// A server for the tests: a fixed window by credential, as Weir counts, or what a test answers.

import { once } from 'node:events';
import http from 'node:http';

/**
 * @typedef {{ method: string, url: string, headers: http.IncomingHttpHeaders, body: Buffer }} Received
 * @param {import('node:test').TestContext} t
 * @param {(received: Received, response: http.ServerResponse) => void} answer
 */
export const serve = async (t, answer) => {
  /** @type {Received[]} */
  const received = [];
  let slowest = 0;
  const server = http.createServer(async (request, response) => {
    slowest = Math.max(slowest, Date.now() - Number(request.headers.sent ?? Infinity));
    const chunks = [];
    for await (const chunk of request) chunks.push(chunk);
    const one = { method: request.method ?? '', url: request.url ?? '', headers: request.headers, body: Buffer.concat(chunks) };
    received.push(one);
    answer(one, response);
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  t.after(() => {
    server.closeAllConnections();
    server.close();
  });
  const { port } = /** @type {import('node:net').AddressInfo} */ (server.address());
  return { url: `http://127.0.0.1:${port}`, port, received, slowest: () => slowest };
};

/**
 * Sends a request with the time. Of a server's requests that came so, slowest() says how long the slowest was on its way.
 * @param {string | URL | Request} input
 * @param {RequestInit} [init]
 */
export const sent = (input, init) => {
  const request = new Request(input, init);
  request.headers.set('Sent', String(Date.now()));
  return fetch(request);
};

/**
 * Repeats a run in which a request was on its way for long, as on a busy machine: such a request is counted in a later
 * window than the caller meant, and what the run found says nothing.
 * @template Found
 * @param {() => Promise<{ found: Found, slowest: number }>} run
 */
export const undisturbed = async run => {
  for (let attempt = 1; ; attempt++) {
    const { found, slowest } = await run();
    if (slowest < 500 || attempt == 5) return found;
  }
};

/**
 * Fixed windows by credential. Returns what a handler answers with, and counts the refusals.
 * @param {number} limit
 * @param {number} seconds
 */
export const limiter = (limit, seconds) => {
  /** @type {Map<string, { reset: number, left: number }>} */
  const windows = new Map();
  const counts = { served: 0, refused: 0 };
  /** @param {Received} received @param {http.ServerResponse} response @param {(reset: number, now: number) => number} [stated] */
  const answer = (received, response, stated = reset => reset) => {
    const now = Math.floor(Date.now() / 1000), who = received.headers.authorization ?? '';
    let window = windows.get(who);
    if (!window || now >= window.reset) windows.set(who, window = { reset: now + seconds, left: limit });
    const ok = window.left > 0;
    if (ok) window.left--;
    counts[ok ? 'served' : 'refused']++;
    response.writeHead(ok ? 200 : 429, {
      'X-RateLimit-Limit': limit, 'X-RateLimit-Remaining': window.left, 'X-RateLimit-Reset': stated(window.reset, now),
      ...ok ? {} : { 'Retry-After': window.reset - now },
    });
    response.end('answer');
  };
  return { answer, counts };
};
