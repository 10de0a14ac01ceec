// A correct limiter in the contract's fields, on Node's own HTTP server: 20 requests in 4 seconds from an address, in fixed windows.
'use strict';
const http = require('http');

const limit = 20, length = 4;
const windows = new Map();

function take(key, now) {
  let w = windows.get(key);
  if (!w || now >= w.reset) {
    w = { used: 0, reset: now + length };
    windows.set(key, w);
  }
  const admitted = w.used < limit;
  if (admitted) w.used++;
  return { admitted, remaining: admitted ? limit - w.used : 0, reset: w.reset };
}

function answer(res, status, body) {
  res.writeHead(status, { 'Content-Type': 'application/json' });
  res.end(JSON.stringify(body));
}

const server = http.createServer((req, res) => {
  const now = Math.floor(Date.now() / 1000);
  const path = new URL(req.url, 'http://localhost').pathname;
  if (!path.startsWith('/things')) return answer(res, 404, { error: { code: 'not_found', message: 'no such page' } });
  const at = take(req.socket.remoteAddress, now);
  res.setHeader('Date', new Date(now * 1000).toUTCString());
  res.setHeader('X-RateLimit-Limit', limit);
  res.setHeader('X-RateLimit-Remaining', at.remaining);
  res.setHeader('X-RateLimit-Reset', at.reset);
  if (!at.admitted) {
    res.setHeader('Retry-After', at.reset - now);
    return answer(res, 429, { error: { code: 'rate_limited', message: 'Please slow down.' } });
  }
  if (path !== '/things/items') return answer(res, 404, { error: { code: 'not_found', message: 'no such thing' } });
  if (req.method !== 'POST') return answer(res, 405, { error: { code: 'method_not_allowed', message: 'POST, please' } });
  answer(res, 400, { error: { code: 'invalid_request', message: 'the body is not what it should be' } });
});
server.listen(0, '127.0.0.1', () => console.log(server.address().port));
