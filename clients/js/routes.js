// Which requests share a budget: the contract's table, or routes of one's own in its form.

export const contract = [
  { name: 'widget-init', routes: ['POST /api/v1/widget/init'], windows: ['1000 per minute by ip+agent', '30000 per hour by ip'] },
  { name: 'widget-session', routes: ['POST /api/v1/widget/messages*', '/api/v1/widget/events*', '/api/v1/widget/conversations*'], windows: ['300 per minute by session or ip'] },
  { name: 'widget-leads', routes: ['POST /api/v1/widget/leads'], windows: ['30 per minute by session or ip'] },
  { name: 'wp-plugin', routes: ['/v1/wp/*'], windows: ['60 per minute by token or ip'] },
  { name: 'widget-typing', routes: ['POST /api/v1/widget/typing'], windows: ['600 per minute by ip'] },
  { name: 'widget-satisfaction', routes: ['POST /api/v1/widget/satisfaction'], windows: ['60 per minute by ip'] },
  { name: 'widget-coupon', routes: ['POST /api/v1/widget/coupon/apply'], windows: ['120 per minute by ip'] },
  { name: 'widget-other', routes: ['/api/v1/widget/*'], windows: ['6000 per minute by ip'] },
];

const units = { second: 1e3, minute: 6e4, hour: 36e5, day: 864e5, week: 6048e5, month: 26784e5 }; // a calendar's longest

// Every spelling of a path that a server may accept, as one.
/** @type {import('./types.js').fold} */
const fold = path => {
  try {
    path = decodeURIComponent(path);
  } catch { /* it stays as it is */ }
  /** @type {string[]} */
  const out = [];
  for (const part of path.toLowerCase().toUpperCase().toLowerCase().split(/[/\\]/)) {
    const name = part.replace(/;.*/s, '');
    if (name == '..') out.pop();
    else if (name && name != '.') out.push('/' + name);
  }
  return out.join('');
};

// The most specific route's limiter, and the values of the route's parameters.
/** @type {import('./types.js').find} */
const find = (limiters, method, url) => {
  const { hostname, pathname } = new URL(url), path = fold(pathname);
  let best, rank = '';
  for (const limiter of limiters) {
    routes: for (const route of limiter.routes) {
      const [, verb, any, host, pattern, star] = /^(?:(\S+) +)?(\*?)(.*?)\.?(\/.*?)(\*?)$/.exec(route) ?? [];
      if (host && hostname.replace(/\.$/, '').slice(any ? -host.length : 0) != host.toLowerCase()) continue;
      /** @type {Record<string, string>} */
      const values = {};
      let rest = path, score = String.fromCharCode(any ? host.length : host ? 255 : 0);
      const [start, ...more] = pattern.split('/{');
      for (const part of ['}' + start, ...more]) {
        const end = part.indexOf('}'), base = fold(part.slice(end + 1));
        if (end) {
          const [, value, after] = /^\/([^/]*)(.*)/s.exec(rest) ?? [];
          if (value == null) continue routes;
          // after the last dot there may be a format
          values[part.slice(0, end)] = after ? value : value.replace(/(.)\.[^.]*$/s, '$1');
          score += '\x01';
          rest = after;
        }
        if (!rest.startsWith(base)) continue routes;
        score += String.fromCharCode(base.length);
        rest = rest.slice(base.length);
      }
      const below = rest[0] == '/', segment = star && pattern.endsWith('/');
      if (rest && !below && rest[0] != '.' && (!star || segment) || verb && verb != method && (verb != 'GET' || method != 'HEAD')) continue;
      const kind = star && !segment ? 0 : below == !!segment ? 2 : 1;
      score += '\0' + (kind * 3 + (verb == method ? 2 : verb ? 1 : 0));
      if (score > rank) [best, rank] = [{ limiter, values }, score];
    }
  }
  return best;
};

/** @type {import('./types.js').limiterOf} */
export const limiterOf = (limiters, method, url) => find(limiters, method, url)?.limiter;

/** @type {import('./types.js').claims} */
const claims = token => {
  try {
    return Object(JSON.parse(atob(token.split('.')[1].replace(/-/g, '+').replace(/_/g, '/'))));
  } catch {
    return {};
  }
};

// A claim by its whole name, or where its dots lead through objects.
/** @type {import('./types.js').claim} */
const claim = (token, name) => {
  const all = claims(token);
  /** @type {import('./types.js').walk} */
  const walk = (from, parts) => {
    if (parts.join('.') in from) return from[parts.join('.')];
    for (let i = 1; i < parts.length; i++) {
      const inner = from[parts.slice(0, i).join('.')], found = Object(inner) === inner ? walk(inner, parts.slice(i)) : null;
      if (found != null) return found;
    }
  };
  const value = walk(all, name.split('.'));
  return (typeof value == 'string' && value || Number.isSafeInteger(value)) && `${all.iss} ${value}`;
};

/** @type {import('./types.js').only} */
const only = all => all.every(one => one == all[0]) ? all[0] : null;

// Whom the server counts a request by, as far as a caller knows.
/** @type {import('./types.js').answer} */
const answer = async (request, source, streams) => {
  const bearer = /^bearer +([^,]+)$/i.exec(request.headers.get('authorization') ?? '')?.[1];
  if (source == 'token') return bearer && !bearer.split('.')[2] ? /^wpt_(.{0,32}?)_/.exec(bearer)?.[1] ?? bearer : request.headers.get('x-api-key');
  if (source == 'session') {
    if (!bearer || /^wpt_/.test(bearer)) return;
    const { iss, sid, jti } = claims(bearer);
    return sid || jti ? [iss, sid, sid || jti].join(' ') : bearer;
  }
  const url = new URL(request.url), [, kind, name] = /^(.*?):(.*)/.exec(source) ?? [];
  if (kind == 'claim') return bearer && claim(bearer, name);
  if (kind == 'query') return only(url.searchParams.getAll(name));
  if (kind == 'cookie') return only((request.headers.get('cookie') ?? '').split('; ').filter(one => one.startsWith(name + '=')).map(one => one.slice(name.length + 1)));
  if (source == 'host') return url.hostname;
  if (source != 'agent') return kind == 'header' ? request.headers.get(name) : null;
  const sent = request.headers.get('x-agent-id') || url.searchParams.get('agent_id');
  const json = !sent && !streams && /^application\/json/.test(request.headers.get('content-type') ?? '');
  const body = json && await request.clone().json().catch(() => 0);
  return sent || typeof body?.agent_id == 'string' && body.agent_id || request.headers.get('user-agent');
};

/** @type {import('./types.js').windowsOf} */
export const windowsOf = async (request, origin, limiter, credentials, streams) => {
  if (!limiter) {
    const sent = credentials.map(name => [name.toLowerCase(), request.headers.get(name)]).filter(([, value]) => value);
    return [{ key: JSON.stringify([origin, ...sent]), limit: 0, length: 0 }];
  }
  const values = find([limiter], request.method, request.url)?.values ?? {};
  return Promise.all((limiter.windows ?? []).map(async text => {
    const [, limit, requests, calendar, n, unit, of, by] = /^(\d+)( requests)? per (calendar )?(?:(\d+) )?(\w+?)s?( .+?)? by (.*)/.exec(text) ?? [];
    const key = [origin, limiter.name, by, n, unit, ...calendar ? [of] : [], ...requests ? ['requests'] : []];
    for (const part of by.split('+')) {
      for (const source of part.trim().split(' or ').map(one => one.trim())) {
        const value = source != 'ip' && (source.startsWith('path:') ? values[source.slice(5)] : await answer(request, source, streams));
        if (value || source == 'ip') {
          key.push(source, value || '');
          break;
        }
      }
    }
    return { key: JSON.stringify(key), limit: +limit, length: (+n || 1) * units[/** @type {'day'} */ (unit)], requests: !!requests };
  }));
};
