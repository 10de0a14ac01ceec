// What the package promises of itself: its size, its files, and the examples of README.md.

import assert from 'node:assert/strict';
import { readdirSync, readFileSync } from 'node:fs';
import { test } from 'node:test';
import { gzipSync } from 'node:zlib';
import { pace } from '../pace.js';
import { limiter, serve } from './server.js';

/** @param {string} name */
const read = name => readFileSync(new URL(`../${name}`, import.meta.url), 'utf8');
const modules = readdirSync(new URL('..', import.meta.url)).filter(name => name.endsWith('.js'));

test('what a browser loads for the contract is small as it is served, comments included', () => {
  const most = 14150; // bytes
  const served = ['pace.js', 'budget.js', 'routes.js', 'fields.js', 'tabs.js'];
  const sizes = served.map(name => gzipSync(read(name), { level: 9 }).length), sum = sizes.reduce((a, b) => a + b);
  assert.ok(sum <= most, `${served} have ${sizes}, together ${sum} bytes with gzip -9: at most ${most}`);
});

test('the modules import each other and nothing else', () => {
  let imports = 0;
  for (const name of modules) {
    for (const [, from] of read(name).matchAll(/(?:from |import\()'([^']+)'/g)) {
      if (from == './types.js') continue; // a comment: the types are in types.d.ts
      assert.ok(modules.includes(from.slice(2)), `${name} imports ${from}`);
      imports++;
    }
  }
  assert.ok(imports > 5, `${imports} imports were found`);
  const { dependencies, devDependencies } = JSON.parse(read('package.json'));
  assert.deepEqual([dependencies, devDependencies], [undefined, undefined]);
});

test('README.md lists every module and every option', () => {
  const text = read('README.md');
  for (const name of modules) assert.ok(text.includes(`\`${name}\``), `${name} is not in README.md`);
  const [, options] = /interface Options {([^}]*)}/.exec(read('types.d.ts')) ?? [];
  const names = [...options.matchAll(/^ {2}(\w+)\?:/gm)].map(([, name]) => name);
  assert.ok(names.length > 5);
  for (const name of names) assert.ok(text.includes(`| \`${name}\` |`), `option ${name} is not in README.md`);
});

test('the adapter for axios of README.md works', async t => {
  const [, code] = /```js\n(const adapter = [^]*?)\nconst client/.exec(read('README.md')) ?? [];
  // as axios has it: the base and the path are joined, and params are appended
  const axios = { getUri: (/** @type {any} */ { baseURL, url, params }) => `${baseURL}${url}?${new URLSearchParams(params)}` };
  const adapter = new Function('paced', 'axios', `${code}; return adapter`)(pace()(fetch), axios);
  const { answer } = limiter(1, 2), { url, received } = await serve(t, answer);
  const config = { method: 'post', url: '/v1/wp/x', params: { q: 'a b' }, baseURL: url, headers: { 'x-n': 1 }, data: 'body', validateStatus: (/** @type {number} */ s) => s < 300 };
  for (let i = 0; i < 2; i++) { // the second waits
    const got = await adapter(config);
    assert.deepEqual([got.status, got.data, got.headers['x-ratelimit-limit']], [200, 'answer', '1']);
  }
  assert.deepEqual(received.map(one => `${one.method} ${one.url} ${one.body} ${one.headers['x-n']}`), Array(2).fill('POST /v1/wp/x?q=a+b body 1'));
  const broken = await serve(t, (_, response) => response.writeHead(500).end());
  await assert.rejects(adapter({ ...config, baseURL: broken.url }), error => /** @type {any} */ (error).response.status === 500);
});
