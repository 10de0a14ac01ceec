// Calls that wait are woken by answers. Timers are switched off for the whole file.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { pace } from '../pace.js';

const path = '/v1/wp/documents';

test('no answer is missed between asking and waiting', async t => {
  t.mock.timers.enable({ apis: ['setTimeout'] }); // so that only an answer can wake a call
  const fields = { 'x-ratelimit-limit': '60', 'x-ratelimit-remaining': '50', 'x-ratelimit-reset': `${Math.ceil(Date.now() / 1000) + 60}` };
  for (let ticks = 0; ticks < 60; ticks++) {
    /** @type {((value: any) => void) | undefined} */
    let release;
    const paced = pace()(() => release ? Promise.resolve(new Response('', { headers: fields })) : new Promise(resolve => release = resolve));
    const url = `https://api${ticks}.example.com${path}`, probe = paced(url); // paced fetches share what they know of a host
    while (!release) await new Promise(setImmediate);
    let served = false;
    const next = paced(url).then(() => served = true);
    for (let i = 0; i < ticks; i++) await null;
    release(new Response('', { headers: fields }));
    await probe;
    for (let i = 0; i < 20 && !served; i++) await new Promise(setImmediate);
    assert.ok(served, `an answer ${ticks} ticks after the call was missed`);
    await next;
  }
});
