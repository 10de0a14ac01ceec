// A fetch that sends each request when there is budget for it. README.md tells what it does, and
// types.d.ts what each part promises.

import { binding, revive, settle, take } from './budget.js';
import { contractFields } from './fields.js';
import { contract, limiterOf, windowsOf } from './routes.js';

const reasons = { spent: 'budget spent', refused: 'refused', probing: 'asking for the budget', slots: 'too many calls in flight' };

// A call does not fail because a module cannot be loaded, as in a service worker.
const missing = () => /** @type {any} */ ({});

export class WaitError extends Error {
  name = 'WaitError';

  /** @param {import('./types.js').About} about */
  constructor(about) {
    const { host, limiter, reason, wait, until } = about;
    super(`${limiter ? `limiter ${limiter} of` : 'requests to'} ${host}: ${reasons[reason]}; the request is not sent, for it `
      + `would wait ${(wait / 1000).toFixed(1)} s, longer than maxWait allows: come back at ${until.toISOString()}, or raise maxWait`);
    Object.assign(this, about);
  }
}

// All paced fetches of a page or a worker share what is known, if they share their clock.
/** @type {WeakMap<() => number, import('./types.js').Memory>} */
const memories = new WeakMap();

/** @type {import('./types.js').pace} */
export const pace = ({
  routes = contract, credentials = ['authorization', 'x-api-key'], maxWait = 6e5, retries = 10, jitter = 100, threshold,
  now = Date.now, Request = globalThis.Request,
} = {}) => (base = fetch) => {
  /** @type {import('./types.js').Memory} */
  const memory = memories.get(now) ?? {
    views: new Map(), flying: new Map(), queues: new Map(), families: new Map(), settlings: new Map(), slots: new Map(), tab: String(Math.random()), calls: 0, changes: 0, failed: -Infinity, most: 1024,
  };
  memories.set(now, memory);
  const { views, flying, queues, families, tab } = memory, events = new EventTarget();
  /** @type {unknown} */
  let told;

  /** @type {import('./types.js').tell} */
  const tell = (type, about) => {
    events.dispatchEvent(Object.assign(new Event(type), about));
  };

  // Budgets have changed: the first call of each line asks again.
  const wake = () => {
    memory.changes++;
    for (const [call] of queues.values()) call.wake?.();
  };

  const shared = () => memory.sharing ??= (async () => {
    if (!globalThis.navigator?.locks || !globalThis.indexedDB || !crypto.subtle) {
      throw Error('no Web Locks, IndexedDB or crypto.subtle: is this a secure origin of a browser?');
    }
    return (await import('./tabs.js')).share(tab, now, wake);
  })().catch(reason => void (memory.alone = reason));

  const fly = (/** @type {import('./types.js').Line} */ { windows }, /** @type {number} */ calls) => {
    for (const { key, cost } of windows) {
      const units = (flying.get(key) ?? 0) + calls * cost;
      if (units) flying.set(key, units);
      else flying.delete(key);
    }
  };

  // Changes the budgets of a line together: the view of all tabs if there is one, else this tab's.
  /** @type {import('./types.js').update} */
  const update = async (line, change, calls = 0) => {
    const { key, windows } = line;
    let flown = 0; // undone if the shared view fails
    /** @type {typeof change} */
    const changed = (budgets, at) => {
      fly(line, flown = calls);
      budgets.forEach((budget, i) => budget.setFlight(tab, flying.get(windows[i].key) ?? 0, queues.get(key)?.length ?? 0, at));
      const result = change(budgets, at), started = /** @type {any} */ (result)?.places ? 1 : 0;
      fly(line, started);
      flown += started;
      return result;
    };
    if (views.size > memory.most) { // drop those that are over
      for (const [key, view] of views) if (!flying.has(key) && now() > Math.max(view.ends, view.blocked)) views.delete(key), memory.settlings.delete(key);
      for (const key of families.keys()) if (!views.has(key)) families.delete(key);
      for (const [key, { held, queue, used }] of memory.slots) if (!held && !queue[0] && performance.now() - used > 36e5) memory.slots.delete(key);
      memory.most = 1024 + 2 * views.size;
    }
    const view = await shared();
    if (view && windows[0] && Math.abs(now() - memory.failed) >= 1000) { // after a failure it is tried again
      try {
        const [result, budgets] = await view(windows, changed, calls < 0);
        windows.forEach((window, i) => views.set(window.key, budgets[i]));
        memory.failed = -Infinity;
        memory.alone = undefined;
        return result;
      } catch (reason) {
        fly(line, -flown);
        memory.alone ??= reason;
        memory.failed = now();
      }
    }
    if (told != memory.alone) tell('alone', { reason: told = memory.alone });
    return changed(windows.map(window => {
      const budget = views.get(window.key) ?? revive(undefined, window.limit, now());
      views.set(window.key, budget);
      return budget;
    }), now());
  };

  /** @type {import('./types.js').lineOf} */
  const lineOf = async (request, streams) => {
    const { host, origin } = new URL(request.url), limiter = limiterOf(routes, request.method, request.url);
    const settles = limiter && (typeof limiter.cost == 'object' || limiter.count || limiter.in_flight) && await import('./settling.js').catch(missing);
    const cost = settles?.costOf ? settles.costOf(limiter) : +(limiter?.cost ?? 1) || 1;
    const windows = (await windowsOf(request, origin, limiter, credentials, streams)).map(window => ({ ...window, tab, threshold, cost: window.requests ? 1 : cost }));
    for (const window of windows) {
      if (await shared()) { // only hashes of credentials leave this tab
        const hash = await crypto.subtle.digest('SHA-256', new TextEncoder().encode(window.key));
        window.key = btoa(String.fromCharCode(...new Uint8Array(hash)));
      }
    }
    const key = windows.map(window => window.key).join() || JSON.stringify([origin, limiter?.name]), line = { key, windows, host, origin, limiter: limiter?.name ?? '', name: '' };
    if (limiter && settles?.settler) {
      const [inFlight] = limiter.in_flight ? await windowsOf(request, origin, { ...limiter, windows: [limiter.in_flight.replace(' by ', ' per second by ')] }, credentials, streams) : [];
      return { ...line, settles, settler: settles.settler(memory, limiter, windows, inFlight) };
    }
    if (limiter) return line;
    const { familyOf } = await import('./families.js').catch(missing);
    if (!familyOf) return line;
    const family = families.get(key) ?? familyOf(line);
    families.set(key, family);
    return member(family, request);
  };

  // The line of a path, with this fetch's threshold.
  /** @type {import('./types.js').member} */
  const member = (family, request) => {
    const line = family.line(request);
    return { ...line, family, windows: line.windows.map(window => ({ ...window, threshold })) };
  };

  /** @type {import('./types.js').sleep} */
  const sleep = (call, wait) => new Promise((resolve, reject) => {
    const { signal } = call.request;
    const stop = () => {
      clearTimeout(timer);
      signal.removeEventListener('abort', stop);
      signal.aborted ? reject(signal.reason) : resolve();
    };
    const timer = setTimeout(stop, Math.min(wait + 1, 2 ** 31 - 1));
    signal.addEventListener('abort', stop);
    call.wake = stop;
    if (signal.aborted) stop(); // its event is over
  });

  // How long a call still waits, whatever becomes of the local clock.
  const patience = (/** @type {import('./types.js').Call} */ { giveUp }) => giveUp - performance.now();

  // Says that a call waits, unless it would wait too long.
  /** @type {import('./types.js').notify} */
  const notify = (call, { host, limiter }, why, until, soonest, waits = true) => {
    const at = now(), about = { host, limiter, reason: why, wait: Math.max(until - at, 0), until: new Date(until) };
    if (soonest - at > Math.max(patience(call), 0) || waits && patience(call) <= 0) throw new WaitError(about);
    if (until <= at) return;
    if (call.told != why) tell('waiting', about);
    call.told = why;
  };

  // Waits until a call may start. The calls of a line start in the order of their arrival.
  /** @type {import('./types.js').enter} */
  const enter = async (call, line, waits) => {
    const { key, windows, family } = line, queue = queues.get(key) ?? [];
    queues.set(key, queue);
    queue.splice(queue.filter(other => other.ticket < call.ticket).length, 0, call);
    try {
      for (;;) {
        call.request.signal.throwIfAborted();
        if (family && family.line(call.request).key != key) break; // it has left this line
        const ahead = queue.indexOf(call), seen = memory.changes, found = ahead ? undefined : await update(line, (budgets, at) => {
          line.settler?.expect(budgets, at, call.certain);
          const taken = take(budgets, windows, at);
          if ('places' in taken) line.settler?.started(taken);
          return taken;
        });
        line.settler?.hope();
        if (found && 'places' in found) return { ...found, line };
        const soonest = Math.max(...windows.map(window => views.get(window.key)?.earliest(window, now(), ahead + 1) ?? 0));
        const until = Math.max(found?.until ?? 0, soonest), why = found?.why ?? 'spent';
        notify(call, line, why, until, soonest, !!(found || queue[0].told)); // the first may just be asking
        waits();
        if (found) for (const other of queue) if (other != call && patience(other) <= 0) other.wake?.();
        if (seen == memory.changes) await sleep(call, Math.min(found ? until - now() + delay(why) : Infinity, patience(call) > 0 ? patience(call) : Infinity));
      }
    } finally {
      queue.splice(queue.indexOf(call), 1);
      if (!queue[0]) queues.delete(key);
      wake();
    }
    return enter(call, member(family, call.request), waits);
  };

  const delay = (/** @type {string} */ why) => why == 'probing' ? 0 : Math.random() * jitter;

  // Handles an answer. Returns when a refused call can start again, 0 if that is not known.
  /** @type {import('./types.js').finish} */
  const finish = async (request, pass, answer) => {
    const { line } = pass, { windows, family } = line, { fields } = answer;
    const to = family && fields ? family.assign(request, line, fields, views, now()) : line;
    let until = await update(line, (budgets, at) => {
      const was = line.settler && budgets.map(one => ({ ...one })), bound = was && fields ? binding(budgets, windows, fields, at) : 0;
      const over = settle(budgets, windows, pass, to.key == line.key ? answer : { kind: 'unsent' }, at);
      line.settler?.answered(pass, was ?? [], budgets, answer, bound);
      return over;
    }, -1);
    if (to.key != line.key) { // another budget was charged
      until = await update(to, (budgets, at) => settle(budgets, to.windows, { at: pass.at, places: [++budgets[0].started] }, answer, at));
      for (const call of queues.get(line.key) ?? []) call.wake?.();
    }
    wake();
    return until;
  };

  /** @type {import('./types.js').Fetch} */
  const paced = async (input, init) => {
    const given = input instanceof Request && init ? input.clone() : input; // a Request is used when it is sent
    const request = given instanceof Request && !init ? given : new Request(given, init);
    if (request.bodyUsed) throw TypeError('the body of the Request was used already');
    const call = { request, ticket: ++memory.calls, giveUp: performance.now() + maxWait, told: '', certain: false };
    const streams = init?.body instanceof ReadableStream || Symbol.asyncIterator in Object(init?.body);
    let line = await lineOf(request, streams);
    const { settles, settler } = line, slots = settler?.slots;
    let holds = false;
    const release = () => {
      if (holds && slots) settles?.release(slots);
      holds = false;
    };
    try {
      for (let attempt = 1; ; attempt++) {
        let /** @type {any} */ pass;
        do {
          if (pass) await finish(request, pass, { kind: 'unsent' });
          if (slots) {
            await settles?.hold(slots, call, async () => {
              notify(call, line, 'slots', now() + 1000, now());
              await sleep(call, patience(call));
            });
            holds = true;
            if (!pass) call.giveUp = performance.now() + maxWait; // for the budget
          }
          pass = await enter(call, line, release); // no slot while it waits
        } while (slots && !(holds ||= !!settles?.tryHold(slots)));
        const replay = attempt <= retries && !streams;
        line = pass.line;
        let response, elsewhere, unsent = true;
        try {
          request.signal.throwIfAborted();
          const copy = replay ? request.clone() : request;
          unsent = false;
          response = await base(copy);
          const to = new URL(response.redirected ? response.url : request.url);
          elsewhere = to.origin != line.origin || (limiterOf(routes, request.method, to.href)?.name ?? '') != line.limiter;
          response.headers.get('date'); // fails if that is no Response
        } catch (error) {
          unsent ||= /ECONNREFUSED|ENOTFOUND/.test(/** @type {any} */ (error).cause?.code);
          await finish(request, pass, { kind: unsent ? 'unsent' : 'lost' });
          throw error;
        }
        const { headers, status } = response, refused = status == 429;
        if (elsewhere) {
          await finish(request, pass, { kind: 'lost' }); // it was redirected: the fields are of another budget
          return response;
        }
        let fields = contractFields(headers), asked = refused && fields?.retry || 0;
        if (!fields || refused && !asked) {
          const { read } = await import('./dialects.js').catch(missing);
          if (read) ({ fields, wait: asked } = read(response));
        }
        call.certain = attempt > retries / 2;
        const bySlots = refused && settler?.refusedBySlots(fields); // no window was charged
        const over = await finish(request, pass, bySlots ? { kind: 'unsent' } : { kind: 'silent', fields, refused, wait: asked });
        if (!refused) {
          if (!settles?.untilEnded) return response;
          const held = holds;
          holds = false;
          return settles.untilEnded(response, request.signal, () => {
            if (held && slots) settles.release(slots);
            settler?.ended(pass, views);
            wake();
          });
        }
        release();
        const at = now(), until = Math.max(over, asked && at + asked), again = until > 0 && replay;
        tell('refused', { host: line.host, limiter: line.limiter, attempt, retryAfter: asked, again: again && until - at <= maxWait && maxWait > 0 });
        if (!again) return response;
        response.body?.cancel?.().catch(() => {});
        call.giveUp = performance.now() + maxWait;
        notify(call, line, 'refused', until, until);
        call.giveUp += 1000; // the wait was accepted, and so is its rest
        await sleep(call, until - now() + delay(''));
      }
    } finally {
      release();
    }
  };

  /** @type {import('./types.js').Paced['budget']} */
  const budget = async (input, init) => {
    const line = await lineOf(new Request(input, init));
    const all = await update(line, (budgets, at) => budgets.map((budget, i) => {
      const wait = Math.max((budget.mayNot(line.windows[i], at)?.until ?? at) - at, 0), { limit, remaining } = budget;
      return { known: budget.phase == 1, limit, remaining, inFlight: budget.inFlight(), reset: new Date(budget.restored(at)), wait };
    }));
    return all.sort((a, b) => +b.known - +a.known || a.remaining - b.remaining)[0];
  };
  /** @type {any} */
  const listeners = { addEventListener: events.addEventListener.bind(events), removeEventListener: events.removeEventListener.bind(events) };
  return Object.assign(paced, { budget }, listeners);
};
