// The contract's fields of a response (section 5). dialects.js reads what other servers send.

import { longest } from './budget.js';

/** @type {import('./types.js').parse} */
export const integer = text => /^\d+$/.test(text ?? '') && BigInt(text ?? '') < 2n ** 63n ? Number(text) : NaN;

/** @type {import('./types.js').parse} */
const httpDate = text => {
  const time = Date.parse(text ?? '');
  return time >= 0 && new Date(time).toUTCString() == text ? time : NaN;
};

// Times are in ms. A Reset is between the years 1973 and 5138, none over 32 days away.
/** @type {import('./types.js').contractFields} */
export const contractFields = (headers, dateOf = httpDate) => {
  const [limit, remaining, reset, retry] = ['x-ratelimit-limit', 'x-ratelimit-remaining', 'x-ratelimit-reset', 'retry-after']
    .map(name => integer(headers.get(name)));
  const date = headers.has('date') ? dateOf(headers.get('date')) : 0;
  if (limit > 0 && remaining >= 0 && reset >= 1e8 && reset < 1e11 && date >= 0 && !+(headers.get('age') ?? 0)) {
    const name = headers.get('x-ratelimit-bucket') ?? headers.get('x-ratelimit-resource') ?? '';
    return { name, limit, remaining, reset: reset * 1000, after: 0, date, retry: retry * 1000 <= longest ? retry * 1000 : 0 };
  }
};
