// The shared table: the same timelines, fields and requests as the Go package pacer and the PHP client.

import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { test } from 'node:test';
import { revive, settle, take } from '../budget.js';
import { read as readAny } from '../dialects.js';
import { familyOf } from '../families.js';
import { contractFields } from '../fields.js';
import { contract, limiterOf, windowsOf } from '../routes.js';

/** @param {string} name */
const table = name => JSON.parse(readFileSync(new URL(`../../../pacer/testdata/${name}`, import.meta.url), 'utf8'));

/** @param {Record<string, string | string[]>} fields */
const headersOf = fields => {
  const headers = new Headers();
  for (const [name, value] of Object.entries(fields ?? {})) for (const one of [value].flat()) headers.append(name, one);
  return headers;
};

/** Reads a response as pace.js does. @param {Headers} headers @param {number} status */
const read = (headers, status) => {
  const fields = contractFields(headers), wait = status == 429 ? fields?.retry ?? 0 : 0;
  return !fields || status == 429 && !wait ? readAny({ headers, status }) : { fields, wait };
};

/** Calls of some processes that share a view, without I/O. */
class World {
  /** @param {any} timeline */
  constructor({ clock = 1800000000000, windows = [], threshold, cost = 1, steps }) {
    this.clock = clock;
    this.cost = cost;
    this.shared = steps.some((/** @type {any} */ step) => step.process);
    const declared = windows.length ? windows : [{ limit: 0, seconds: 0 }];
    /** @type {any} */
    this.first = {
      key: '', name: '',
      windows: declared.map((/** @type {any} */ w, /** @type {number} */ i) => ({ key: `${i}`, limit: w.limit, length: w.seconds * 1000, threshold, cost })),
    };
    this.family = windows.length ? undefined : familyOf(this.first);
    /** @type {Map<string, any>} */
    this.views = new Map();
    /** @type {Map<string, number>} */
    this.flying = new Map();
    /** @type {Map<string, number>} */
    this.waiting = new Map();
    /** @type {Record<string, any>} */
    this.passes = {};
  }

  /** @param {string} process @param {any} line @param {number} calls */
  fly(process, line, calls) {
    for (const { key } of line.windows) this.flying.set(process + key, (this.flying.get(process + key) ?? 0) + calls * this.cost);
  }

  /** Changes the budgets of a line in the view of a process. @param {string} process @param {any} line @param {number} now @param {(budgets: any[], windows: any[]) => any} change */
  update(process, line, now, change) {
    const windows = line.windows.map((/** @type {any} */ window) => ({ ...window, tab: process }));
    const budgets = windows.map((/** @type {any} */ { key, limit }) => {
      const stored = this.views.get(key);
      const budget = stored && !this.shared ? stored : revive(stored && structuredClone({ ...stored }), limit, now);
      budget.setFlight(process, this.flying.get(process + key) ?? 0, this.shared ? this.waiting.get(process) ?? 0 : 0, now);
      this.views.set(key, budget);
      return budget;
    });
    return change(budgets, windows);
  }

  /** @param {any} step */
  apply(step) {
    const process = `${step.process ?? 0} `, now = this.clock + step.at;
    const request = { method: 'GET', url: `https://api.example.com${step.path ?? '/'}` };
    if (step.start !== undefined) {
      const line = this.family?.line(request) ?? this.first;
      const found = this.update(process, line, now, (budgets, windows) => take(budgets, windows, now));
      if (!('places' in found)) return { wait: found.until - now, why: found.why };
      this.fly(process, line, 1);
      this.passes[step.start] = { ...found, process, line, request };
      return 'start';
    }
    const call = step.answer ?? step.lost ?? step.unsent;
    if (call !== undefined) {
      const pass = this.passes[call], { process, line } = pass, refused = step.status == 429;
      const { fields, wait } = step.answer !== undefined ? read(headersOf(step.fields), step.status) : { fields: undefined, wait: 0 };
      const answer = { kind: step.lost !== undefined ? 'lost' : step.unsent !== undefined ? 'unsent' : 'silent', fields, refused, wait };
      const to = this.family && fields ? this.family.assign(pass.request, line, fields, this.views, now) : line;
      this.fly(process, line, -1);
      let over = this.update(process, line, now, (budgets, windows) => settle(budgets, windows, pass, /** @type {any} */ (to.key == line.key ? answer : { kind: 'unsent' }), now));
      if (to.key != line.key) {
        over = this.update(process, to, now, (budgets, windows) => settle(budgets, windows, { at: pass.at, places: [++budgets[0].started] }, /** @type {any} */ (answer), now));
      }
      return refused ? Math.max(over && over - now, wait) || null : undefined;
    }
    if (step.waiting !== undefined) {
      this.waiting.set(process, step.waiting);
      this.update(process, this.first, now, () => {});
    }
  }

  /** @param {any} step */
  budgets(step) {
    const now = this.clock + step.at, request = { method: 'GET', url: `https://api.example.com${step.path ?? '/'}` };
    const line = this.family?.line(request) ?? this.first, kept = new Map(this.views), flights = structuredClone([...kept].map(([, view]) => view.flights));
    const known = this.update(`${step.process ?? 0} `, line, now, budgets => budgets.map(budget => {
      const known = budget.phase == 1 && now < budget.restored(now);
      return { known, limit: budget.limit, remaining: budget.remaining, inFlight: budget.inFlight(), restored: known ? budget.restored(now) - now : undefined };
    }));
    this.views = kept; // looking at a budget changes nothing
    [...kept].forEach(([, view], i) => view.flights = flights[i]);
    return known;
  }
}

/** @param {any} got @param {any} want @param {string} what */
const near = (got, want, what) => {
  assert.ok(got !== undefined && got !== null && Math.abs(got - want) <= 1, `${what}: got ${got}, want ${want}`);
};

for (const file of ['timelines.json', 'generated.json']) {
  for (const timeline of table(file)) {
    test(`${file}: ${timeline.name}`, () => {
      const world = new World(timeline);
      for (const step of timeline.steps) {
        const where = `step ${JSON.stringify(step)}`, got = world.apply(step);
        if (step.start !== undefined) {
          if (step.verdict == 'start') assert.equal(got, 'start', `${where}: got ${JSON.stringify(got)}`);
          else {
            near(got.wait, step.verdict.wait, `${where}: ${JSON.stringify(got)}: wait`);
            assert.equal(got.why, step.verdict.why, where);
          }
        }
        if (step.again === null) assert.equal(got, null, where);
        else if (step.again !== undefined) near(got, step.again, where);
        if (step.budget) {
          const budgets = world.budgets(step);
          for (const [i, want] of step.budget.entries()) {
            for (const [name, value] of Object.entries(want)) {
              const what = `${where}: ${name} of window ${i}`, have = /** @type {any} */ (budgets[i])[name];
              if (name == 'restored') near(have, value, what);
              else assert.equal(have, value, what);
            }
          }
        }
      }
    });
  }
}

// Headers trims the values of fields, so that fetch cannot see this one.
const invisible = ['A number with a space'];

for (const row of table('fields.json')) {
  if (invisible.includes(row.name)) continue;
  test(`fields.json: ${row.name}`, () => {
    const status = row.status ?? 200, { fields, wait } = read(headersOf(row.fields), status);
    if (row.means) {
      assert.ok(fields, 'the fields say nothing');
      const { limit, remaining, reset, after } = row.means;
      assert.equal(fields.limit, limit ?? 0);
      assert.equal(fields.remaining, remaining);
      if (reset) assert.equal(fields.reset, reset * 1000);
      if (after) near(fields.after, after, 'after');
      if (row.means.name !== undefined) assert.equal(fields.name, row.means.name);
    } else if (row.means === null) assert.equal(fields, undefined);
    if (row.believed === false) {
      const world = new World({ steps: [] });
      world.apply({ at: 0, start: 'a' });
      world.apply({ at: 0, answer: 'a', status, fields: row.fields });
      assert.equal(world.budgets({ at: 0 })[0].known, false, 'it was believed');
    }
    if (row.retryAfter !== undefined) assert.equal(wait || null, row.retryAfter);
  });
}

for (const row of table('requests.json')) {
  test(`requests.json: ${row.name}`, async () => {
    const keys = [], limiters = [];
    for (const { method = 'GET', url, headers, body } of row.requests) {
      const request = new Request(url, { method, headers, body });
      const limiter = limiterOf(row.routes ?? contract, method, url);
      limiters.push(limiter?.name ?? '');
      const windows = await windowsOf(request, new URL(url).origin, limiter, ['authorization', 'x-api-key']);
      keys.push(windows.map(window => window.key).join());
      if (row.windows && keys.length == 1) {
        assert.deepEqual(windows.map(({ limit, length }) => ({ limit, seconds: length / 1e3 })), row.windows);
        assert.equal(new Set(windows.map(window => window.key)).size, windows.length, 'each window has a budget of its own');
      }
    }
    if (row.limiters) assert.deepEqual(limiters, row.limiters);
    assert.deepEqual(keys.map(key => keys.indexOf(key)), row.budgets.map((/** @type {any} */ one) => row.budgets.indexOf(one)));
  });
}
