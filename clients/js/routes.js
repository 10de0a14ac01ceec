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

const units = { second: 1e3, minute: 6e4, hour: 36e5, day: 864e5 };

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

/** @type {import('./types.js').limiterOf} */
export const limiterOf = (limiters, method, url) => {
  const path = fold(new URL(url).pathname);
  let best, rank = -1;
  for (const limiter of limiters) {
    for (const route of limiter.routes) {
      const [, verb, start, star] = /^(?:(\S+) +)?(.*?)(\*?)$/.exec(route) ?? [];
      const base = fold(start), rest = path.slice(base.length), below = rest[0] == '/';
      const segment = star && start.endsWith('/');
      if (!path.startsWith(base) || rest && !below && rest[0] != '.' && (!star || segment)
        || verb && verb != method && (verb != 'GET' || method != 'HEAD')) continue;
      const kind = star && !segment ? 0 : below == !!segment ? 2 : 1;
      const score = base.length * 9 + kind * 3 + (verb == method ? 2 : verb ? 1 : 0);
      if (score > rank) [best, rank] = [limiter, score];
    }
  }
  return best;
};

// Whom the server will count a request by, as far as a caller knows.
/** @type {import('./types.js').answer} */
const answer = async (request, source, streams) => {
  const bearer = /^bearer +([^,]+)$/i.exec(request.headers.get('authorization') ?? '')?.[1];
  if (source == 'token' || source == 'session') {
    if (!bearer || bearer.startsWith('wpt_') != (source == 'token')) return;
    if (source == 'token') return /^wpt_(.{0,32}?)_/.exec(bearer)?.[1] ?? bearer;
    try {
      const { iss, sid, jti } = JSON.parse(atob(bearer.split('.')[1].replace(/-/g, '+').replace(/_/g, '/')));
      return sid || jti ? [iss, sid, sid || jti].join(' ') : bearer;
    } catch {
      return bearer;
    }
  }
  if (source != 'agent') return request.headers.get(source.replace('header:', ''));
  const sent = request.headers.get('x-agent-id') || new URL(request.url).searchParams.get('agent_id');
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
  return Promise.all(limiter.windows.map(async text => {
    const [, limit, n, unit, by] = /^(\d+) per (?:(\d+) )?(\w+?)s? by (.*)/.exec(text) ?? [];
    const key = [origin, limiter.name, by, n, unit];
    for (const part of by.split('+')) {
      for (const source of part.trim().split(' or ')) {
        const value = source != 'ip' && await answer(request, source.trim(), streams);
        if (value || source == 'ip') {
          key.push(source, value || '');
          break;
        }
      }
    }
    return { key: JSON.stringify(key), limit: +limit, length: (+n || 1) * units[/** @type {'day'} */ (unit)] };
  }));
};
