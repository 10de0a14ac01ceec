// What is known of one window of one caller: pacer/budget.go in JavaScript, with times in ms.
// It keeps bounds, not guesses. types.d.ts tells what each part means.

const second = 1000;
export const longest = 32 * 864e5; // no Reset is later

// The phases of a window: the first answer will show it; known until Reset; answers have no fields.
const unknown = 0, known = 1, silent = 2;

const { max, min, ceil, floor, trunc } = Math;

/** @type {import('./types.js').Methods} */
const rules = {
  inFlight() {
    return this.flights.reduce((sum, flight) => sum + flight.units, 0);
  },

  setFlight(tab, units, waiting, now) {
    const own = this.flights.find(flight => flight.tab == tab);
    this.flights = this.flights.filter(flight => flight != own && now - flight.at < 60 * second);
    this.flights.push({ tab, taken: 0, ...own, units, waiting, at: now });
  },

  bury(alive) {
    for (const flight of this.flights) {
      if (!alive.has(flight.tab)) {
        if (this.phase == known) {
          this.lost += flight.units;
          this.lostAt = this.started;
        }
        this.probes = max(this.probes - flight.units, 0);
        flight.units = flight.waiting = 0;
      }
    }
  },

  fair(ask, now) {
    let wanting = 1, taken = 0;
    for (const flight of this.flights) {
      if (flight.tab == ask.tab) taken = flight.taken;
      else if (flight.waiting && now - flight.at < second) wanting++;
    }
    return wanting == 1 || now - this.opened >= second
      || taken < max(floor((this.limit - this.mustLeave(ask) + 1) / wanting), ask.cost);
  },

  expire(now) {
    if (this.phase == known && (now >= this.restored(now) || now < this.seen - second)) {
      this.phase = unknown;
      this.probes = this.least = 0;
      this.turned = this.started;
      this.opened = now;
      this.decay();
    }
  },

  decay() {
    this.foreign = (this.foreign + this.byOthers()) / 2;
    this.own = (this.own + this.charged) / 2;
    this.base = this.remaining;
    this.charged = this.lost = 0;
    for (const flight of this.flights) flight.taken = 0;
  },

  restored(now) {
    return min(this.reaches(this.reset, now), this.ends);
  },

  mayNot(ask, now) {
    if (now < this.seen - second) this.blocked = 0; // the local clock was set back
    if (now < this.blocked) return { until: this.blocked, why: 'refused' };
    this.expire(now);
    if (this.phase == silent) return;
    if (this.phase == unknown) {
      return this.least && this.fits(this.least, ask) ? undefined : this.mayNotProbe(ask, now);
    }
    const until = this.restored(now);
    if (!this.fits(min(this.remaining + (ask.back ?? 0), max(this.limit, this.remaining)), ask)) return { until, why: 'spent' };
    if (!this.fair(ask, now)) return { until: min(this.opened + second, until), why: 'spent' };
  },

  mayNotProbe(ask, now) {
    const elapsed = trunc((now - this.probing) / second);
    const limit = this.limit || ask.limit;
    const over = now - this.opened >= (this.limit ? max(this.length, this.lengthWas) : ask.length);
    if (!this.probes || elapsed < 0 || this.probes < 2 ** min(elapsed, 30)
      && (!limit || over || this.fits(limit - this.charged, ask))) return;
    return { until: this.probing + (elapsed + 1) * second, why: 'probing' };
  },

  // Units in flight may have been charged or not. Others are assumed to have twice their share.
  fits(left, ask) {
    const mine = this.inFlight() + this.lost;
    const theirs = min(ceil(2 * this.others() * (mine + ask.cost)), floor(this.limit / 2));
    return left - mine - theirs >= this.mustLeave(ask);
  },

  mustLeave(ask) {
    return max(ask.threshold ?? min(5, ceil(this.limit / 10)), ask.cost);
  },

  others() {
    const own = this.own + this.charged, foreign = this.foreign + this.byOthers();
    return own < 1 || foreign < 1 ? 0 : foreign / own;
  },

  byOthers() {
    return max(this.base - this.remaining - this.charged - this.inFlight() - this.lost, 0);
  },

  begin(ask, now) {
    for (const flight of this.flights) {
      if (flight.tab == ask.tab) {
        flight.taken += ask.cost;
        flight.units += ask.cost;
      }
    }
    if (this.phase == unknown) {
      if (!this.probes++) this.probing = now;
      this.opened ||= now;
    }
    return ++this.started;
  },

  learn(sent, answer) {
    const { fields, refused, wait = 0 } = answer;
    let until = 0;
    if (fields && answer.kind == 'other') this.otherBinds(sent, fields, refused);
    else if (fields) {
      until = this.observe(sent, fields, refused);
      if (until && refused && fields.remaining >= sent.cost) { // another limit has refused it
        const pause = wait || min(60 * second, max(until - sent.now, 0));
        this.block(sent.now, pause);
        return sent.now + pause;
      }
    } else if (answer.kind == 'silent') this.noFields(sent);
    else {
      if (answer.kind == 'lost' && this.phase == known) {
        this.lost += sent.cost;
        this.lostAt = this.started;
      }
      this.notSent(sent);
    }
    if (refused && !until && wait && answer.kind != 'other') this.block(sent.now, wait);
    return until;
  },

  // The third answer in a row without fields ends the pacing of a known limiter.
  noFields(sent) {
    if (this.phase || sent.place <= this.turned) return;
    if (++this.quiet >= 3 || !this.limit) {
      this.phase = silent;
      this.probes = 0;
    } else this.notSent(sent);
  },

  notSent(sent) {
    if (this.phase == unknown && sent.place > this.turned) this.probes = max(this.probes - 1, 0);
  },

  otherBinds(sent, fields, refused) {
    if (this.phase == silent) this.phase = this.probes = this.least = 0;
    const left = this.phase ? 'remaining' : 'least';
    this.notSent(sent);
    this.probing = sent.now;
    if (!refused) {
      this[left] = max(this[left] - sent.cost, 0);
      this.charged += sent.cost;
    }
    this.atMost = 1;
    if (sent.place > max(this.newest, this.turned)) this[left] = max(this[left], fields.remaining);
    this.newest = this.started;
  },

  observe(sent, { limit, remaining, reset, after, date, retry }, refused) {
    const { now, place } = sent, fitted = remaining >= sent.cost;
    if (!limit && after) limit = max(this.limit, remaining, 1);
    if (!date && retry && !fitted) date = reset - retry; // Retry-After counts from the refusal
    const left = this.distance(reset, after, date, sent);
    if (!limit || !left) {
      this.noFields(sent);
      return 0;
    }
    if (date && this.saw(date, sent.at, now)) this.length = this.lengthWas = 0;
    remaining = refused && !fitted ? 0 : min(remaining, limit);
    if (place > this.lostAt) { // what is left shows whether they were charged
      this.charged += this.lost;
      this.lost = 0;
    }
    this.quiet = 0;
    let until = now + left + second;
    if (after) { // the Resets of one window differ by rounding
      until = now + after;
      reset = (date || this.serverTime(now)) + left + second;
      if (this.phase == known && limit == this.limit && Math.abs(reset - this.reset) <= second) {
        reset = this.reset;
        until = min(until, this.ends);
      }
    }
    this.expire(now);
    const newer = place > this.newest;
    if (this.at && this.reaches(reset, now) <= now) { // the window is over
      this.notSent(sent);
      return now;
    }
    if (this.phase != known) {
      if (!newer) remaining = min(remaining, max(remaining - this.charged, this.least - sent.cost, 0));
      this.open(limit, remaining, reset, now);
      this.atMost = newer ? 0 : 1;
    } else if (reset == this.reset && limit == this.limit) {
      if (!refused) this.charged += sent.cost;
      if (newer) {
        this.base += max(remaining - this.remaining, 0); // units were given back
        this.remaining = remaining;
        this.atMost = 0;
      } else {
        const rest = this.remaining - (this.atMost && !refused ? sent.cost : 0);
        this.remaining = max(min(rest, remaining), 0);
      }
    } else if (newer) {
      this.open(limit, remaining, reset, now);
      this.atMost = 0;
    } else { // of a window that is over, or of one that began early
      if (limit == this.limit && reset > this.reset) this.remaining = min(this.remaining, remaining);
      this.newest = this.started;
      return this.reaches(reset, now);
    }
    this.newest = this.started;
    this.seen = now;
    this.ends = until;
    this.length = max(this.length, left);
    return this.restored(now);
  },

  distance(reset, after, date, sent) {
    let left = reset - (date || this.serverTime(sent.now));
    if (after) left = ceil(after / second) * second;
    else if (!date && !this.at && sent.length) left = min(left, sent.length); // the clock may be slow
    return 0 < left && left <= longest ? left : 0;
  },

  open(limit, remaining, reset, now) {
    if (this.phase == known) this.decay();
    this.lengthWas = this.limit == limit ? this.length : 0;
    this.phase = known;
    this.length = this.probes = this.charged = 0;
    this.opened = now;
    this.limit = limit;
    this.remaining = this.base = remaining;
    this.reset = reset;
  },

  block(now, wait) {
    this.blocked = max(this.blocked, now + wait);
    this.seen = now;
    if (this.phase == silent) this.phase = this.probes = 0;
  },

  earliest(ask, now, n) {
    if (this.phase == silent || !this.limit) return max(now, this.blocked);
    const calls = (/** @type {number} */ left) => max(floor((left - this.mustLeave(ask)) / ask.cost) + 1, 0);
    const open = this.phase == known && now < this.restored(now);
    const most = ask.most ?? -1; // calls that start may give all of their charge back, so any number can follow
    const ahead = !open ? 0 : most < 0 ? calls(this.remaining) : calls(min(this.remaining + most, this.limit)) && Infinity;
    const windows = ceil(max(n - ahead, 0) / max(calls(this.limit), 1));
    const first = open ? this.restored(now) : now;
    return max(this.blocked, windows ? first + (windows - 1) * this.length : now);
  },

  drift(now) {
    return this.at ? max(now - this.at, 0) * 5e-4 : 0;
  },

  saw(date, sent, now) {
    const drift = this.drift(now), low = date - now, high = date + second - sent;
    const agrees = this.at && this.low - drift <= high && low <= this.high + drift;
    const contradicts = this.at && !agrees;
    this.low = agrees ? max(low, this.low - drift) : low;
    this.high = agrees ? min(high, this.high + drift) : high;
    this.at = now;
    return !!contradicts;
  },

  reaches(time, now) {
    return time - this.low + this.drift(now);
  },

  serverTime(now) {
    return floor((now + this.low - this.drift(now)) / second) * second;
  },
};

const blank = {
  phase: 0, limit: 0, remaining: 0, reset: 0, ends: 0, length: 0, lengthWas: 0, atMost: 0, least: 0,
  quiet: 0, blocked: 0, seen: 0, opened: 0, low: 0, high: 0, at: 0, started: 0, newest: 0, turned: 0,
  lost: 0, lostAt: 0, probes: 0, probing: 0, own: 0, foreign: 0, base: 0, charged: 0, used: 0,
};

/** @type {import('./types.js').revive} */
export const revive = (stored, declared, now) => {
  const soon = now + longest + 2 * second;
  const sound = stored && Array.isArray(stored.flights)
    && stored.flights.every(f => f?.tab && Number.isFinite(f.units + f.waiting + f.taken) && f.at <= now + second)
    && Object.keys(blank).every(name => Number.isFinite(stored[/** @type {keyof typeof blank} */ (name)]))
    && [unknown, known, silent].includes(stored.phase) && stored.seen <= now + second && stored.ends <= soon && stored.blocked <= soon
    && now - stored.used < 36e5;
  const state = sound ? stored : { ...blank, phase: declared ? unknown : silent, flights: [] };
  return Object.assign(Object.create(rules), state, { used: now });
};

/** @type {import('./types.js').take} */
export const take = (budgets, windows, at) => {
  for (const [i, budget] of budgets.entries()) {
    const no = budget.mayNot(windows[i], at);
    if (no) return no;
  }
  return { at, places: budgets.map((budget, i) => budget.begin(windows[i], at)) };
};

/** @type {import('./types.js').settle} */
export const settle = (budgets, windows, { at, places }, answer, now) => {
  const { fields } = answer, bound = fields ? binding(budgets, windows, fields, now) : 0;
  return max(...budgets.map((budget, i) => {
    const { cost, length } = windows[i], sent = { cost, length, at, now, place: places[i] };
    return budget.learn(sent, fields && i != bound ? { ...answer, kind: 'other' } : answer);
  }));
};

/** @type {import('./types.js').binding} */
export const binding = (budgets, windows, { limit, reset, after, date }, now) => {
  const ahead = after ? ceil(after / second) * second : reset - (date || floor(now / second) * second);
  let best = 0, most = -Infinity;
  windows.forEach((window, i) => {
    const fits = ahead <= window.length, was = budgets[i].limit;
    const score = +fits + (was == limit || window.limit == limit ? 2 : was ? -2 : 0);
    if (score > most || score == most && fits == window.length < windows[best].length) [best, most] = [i, score];
  });
  return best;
};
