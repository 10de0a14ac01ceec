// What a response of any server says about a budget: headers/standing.go in JavaScript. This module
// is loaded when a response does not have the contract's fields.

import { longest } from './budget.js';
import { contractFields, integer } from './fields.js';

const names = [
  'x-ratelimit-limit x-ratelimit-remaining x-ratelimit-reset-after',
  'x-ratelimit-limit x-ratelimit-remaining x-ratelimit-reset',
  'ratelimit-limit ratelimit-remaining ratelimit-reset',
  'x-rate-limit-limit x-rate-limit-remaining x-rate-limit-reset',
  'x-ratelimit-limit-requests x-ratelimit-remaining-requests x-ratelimit-reset-requests',
  'x-ratelimit-limit-tokens x-ratelimit-remaining-tokens x-ratelimit-reset-tokens',
  'anthropic-ratelimit-requests-limit anthropic-ratelimit-requests-remaining anthropic-ratelimit-requests-reset',
  'anthropic-ratelimit-tokens-limit anthropic-ratelimit-tokens-remaining anthropic-ratelimit-tokens-reset',
].map(line => line.split(' '));

const units = { h: 36e5, m: 6e4, s: 1e3, ms: 1, us: 1e-3, 'µs': 1e-3, ns: 1e-6 };

/** @type {import('./types.js').parse} */
const decimal = text => /^\d{1,18}(\.\d{1,9})?$/.test(text ?? '') ? Number(text) : NaN;

// An HTTP date in one of its three forms.
/** @type {import('./types.js').parse} */
const httpDate = text => {
  const [, day, month, year, time] = /^(?:\w{6,9}, (\d\d)-(\w{3})-(\d\d) ([\d:]{8}) GMT)$/.exec(text ?? '') ?? [];
  const [, m, d, t, y] = /^\w{3} (\w{3}) ([ \d]\d) ([\d:]{8}) (\d{4})$/.exec(text ?? '') ?? [];
  const full = year ? `${day} ${month} ${+year < 69 ? 20 : 19}${year} ${time} GMT` : y ? `${d} ${m} ${y} ${t} GMT` : text ?? '';
  const at = Date.parse(full), back = new Date(at).toUTCString();
  return at >= 0 && back.slice(0, 3) == text?.slice(0, 3) && back.endsWith(full.trim().padStart(24, '0')) ? at : NaN;
};

/** @type {import('./types.js').parse} */
const anyDate = text => {
  const iso = /^(\d{4}-\d\d-\d\d)[T ](\d\d:\d\d:\d\d(?:\.\d+)?)(Z|[+-]\d\d:?\d\d)?$/.exec(text ?? '');
  return iso ? ceil1000(Date.parse(`${iso[1]}T${iso[2]}${iso[3] ?? 'Z'}`)) : httpDate(text);
};

const ceil1000 = (/** @type {number} */ ms) => Math.ceil(ms / 1000) * 1000;

/** @type {import('./types.js').parse} */
const duration = text => {
  if (!/^(\d*\.?\d+\.?(h|m|s|ms|us|µs|ns))+$/.test(text ?? '')) return NaN;
  let sum = 0;
  for (const [, n, unit] of (text ?? '').matchAll(/([\d.]+)([a-zµ]+)/g)) sum += Number(n) * units[/** @type {'s'} */ (unit)];
  return sum;
};

// How long a 429 asks to wait; 0 if that is not known, or longer than any window.
/** @type {import('./types.js').retryAfter} */
const retryAfter = headers => {
  const text = headers.get('retry-after'), seconds = decimal(text);
  const wait = isNaN(seconds) ? Math.max(anyDate(text) - httpDate(headers.get('date')), 0) : seconds * 1000;
  return wait <= longest ? wait || 1000 : 0;
};

/** @type {import('./types.js').read} */
export const read = ({ headers, status }) => {
  const get = (/** @type {string} */ name) => headers.get(name);
  const date = headers.has('date') ? httpDate(get('date')) : 0, wait = status == 429 ? retryAfter(headers) : 0;
  if (isNaN(date) || +(get('age') ?? 0)) return { wait };
  let best = contractFields(headers, httpDate), last = '';
  if (best) return { fields: best, wait };
  for (const row of [[], ...names]) {
    const [limits] = row, found = limits ? limits != last && dialect(row, get, date, wait) : list(get('ratelimit'), get('ratelimit-policy'));
    if (!found) continue;
    last = limits;
    if (limits?.includes('token') && found.remaining) continue; // its units are no requests
    const left = found.after || found.reset - date;
    if (!best || found.remaining < best.remaining
      || found.remaining == best.remaining && left > (best.after || best.reset - date) + 1000) best = { ...found, date, retry: 0 };
  }
  return { fields: best, wait };
};

/** @type {import('./types.js').dialect} */
const dialect = ([limits, remainings, resets], get, date, wait) => {
  const text = get(limits) ?? '', listed = text.split(',');
  const limit = integer(listed[0].split(';')[0].trim());
  const remaining = integer(get(remainings)), reset = get(resets);
  if (!limit || isNaN(remaining) || listed[1] && !text.includes(';')) return;
  let span = 0;
  for (const one of listed) {
    const [, quota, w] = /^\s*(\d+)\s*(?:;.*?\bw=(\d+))?/.exec(one) ?? [];
    if (!span && +quota == limit) span = +(w ?? 0);
  }
  const name = limits.startsWith('x-ratelimit-limit') && (get('x-ratelimit-bucket') ?? get('x-ratelimit-resource')) || '';
  const found = (/** @type {number} */ reset, after = 0) => ({ name, limit, remaining, reset, after });
  const time = anyDate(reset), left = duration(reset), number = decimal(reset);
  if (time) return found(time);
  if (left >= 0) return found(0, left);
  if (!(number < 1e14)) return;
  const millis = span && number > span ? number <= span * 1000
    : wait && number >= 500 && Math.abs(number - wait) <= 1000;
  if (number * 1000 <= longest) return found(0, millis && !resets.endsWith('-after') ? number : number * 1000);
  if (number >= 1e11) return found(ceil1000(number));
  if (number >= 1e8 || date && Math.abs(number * 1000 - date) <= longest) return found(Math.ceil(number) * 1000);
  return found(0, number);
};

/** @type {import('./types.js').list} */
const list = (text, policy) => {
  if (!text) return;
  if (!text.includes('"')) {
    const part = (/** @type {string} */ name) => integer(new RegExp(`(?:^|,)\\s*${name}=(\\d+)(?:;[^,]*)?(?=,|$)`).exec(text)?.[1]);
    const limit = part('limit'), remaining = part('remaining'), reset = part('reset');
    return limit && remaining >= 0 && reset >= 0 ? { name: '', limit, remaining, reset: 0, after: reset * 1000 } : undefined;
  }
  const limits = members(text), quotas = members(policy ?? '') ?? Object.create(null);
  let best;
  for (const name in limits) {
    const { r, t = 0 } = limits[name];
    if (!(r >= 0 && t >= 0)) return;
    const one = { name, limit: quotas[name]?.q ?? 0, remaining: r, reset: 0, after: t * 1000 };
    if (!best || r < best.remaining || r == best.remaining && one.after > best.after) best = one;
  }
  return best;
};

/** @type {import('./types.js').members} */
const members = text => {
  /** @type {Record<string, Record<string, number>>} */
  const all = Object.create(null); // a name may be that of a property
  const member = /\s*"((?:[ !#-[\]-~]|\\["\\])*)"((?:; *[a-z*][\w.*-]*(?:=(?:"[^"]*"|[^\s;,"]+))?)*)\s*(,|$)/y;
  while (member.lastIndex < text.length) {
    const [, name, parameters] = member.exec(text) ?? [];
    if (name === undefined || all[name]) return;
    all[name] = {};
    for (const [, key, value] of parameters.matchAll(/; *([^=;]+)(?:=("[^"]*"|[^;]*))?/g)) all[name][key] = integer(value);
  }
  return all;
};
