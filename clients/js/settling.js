// What comes back after the answers of calls, and how many calls may be in flight: pacer/settling.go
// and pacer/slots.go in JavaScript. Only this tab or process knows it. types.d.ts tells what each
// part means.

const { ceil, max, min, round } = Math;
const memory = .999, unseenMemory = .9, longWait = 6e4, buffered = 65536, mostEnded = 1024;

const keptOf = (/** @type {number} */ part, /** @type {number} */ units) => ceil(part * units);

/** @type {import('./types.js').costOf} */
export const costOf = ({ cost = 1 }) => {
  if (typeof cost == 'number') return cost;
  return typeof cost.reserve == 'number' ? cost.reserve : cost.reserve?.at_most ?? 1;
};

/** @type {import('./types.js').SettlingRules & ThisType<import('./types.js').Settling>} */
const rules = {
  // Calls that ended while the newest response was on its way may be in that already, and so may
  // calls whose end was not seen yet: whole bounds the result. With nothing in flight one call starts
  // and shows what is left.
  back(remaining, flying, long) {
    const idle = !flying && !this.open;
    if (!this.known && !idle) return 0;
    let units = 0;
    if (idle && (long || !this.known)) {
      for (const call of this.ended) units += call.units;
      return units - round(this.guess * units);
    }
    for (const call of this.ended) if (idle || call.tick > this.read) units += call.units - keptOf(this.most, call.units);
    return idle ? units : max(min(units, this.whole - keptOf(this.most, this.endedSince) - this.open - remaining), 0);
  },

  mostBack(flying) {
    return this.ended.reduce((sum, call) => sum + call.units, this.open + flying);
  },

  end(units) {
    this.tick++;
    if (this.ended.length < mostEnded) this.ended.push({ tick: this.tick, units });
    this.endedSince += units;
  },

  observe(tick, cost, was, is, remaining, flying, refused) {
    if (refused) remaining = cost; // less than that is left
    const another = is.reset != was.reset || is.limit != was.limit;
    if (another) {
      this.ended = [];
      if (!this.seen) {
        this.most *= unseenMemory;
        this.guess *= unseenMemory;
        this.doubted = true;
      }
      this.seen = false;
    }
    const before = this.ended.filter(call => call.tick <= tick), full = before.reduce((sum, call) => sum + call.units, 0);
    this.ended = this.ended.filter(call => call.tick > tick);
    const after = this.ended.reduce((sum, call) => sum + call.units, 0);
    const doubled = was.remaining + this.open - cost + full > this.whole - keptOf(this.least, this.endedSince - full); // a call whose end was not seen yet
    const certain = !doubled && !flying && tick > this.read && before.every(call => call.tick > this.read);
    if (full && refused) {
      const idle = !(flying + this.open);
      if (!this.known || !idle) this.most = 1;
      if (!idle) this.seen = true;
      else { // it was sent to find out what is left: less than its cost
        this.guess = 1;
        this.most = max(this.most, min((full - max(cost - 1 - was.remaining, 0)) / full, 1));
      }
      this.known = true;
    } else if (full && certain && was.phase == 1 && is.phase == 1 && !was.atMost) {
      this.learn((was.remaining - cost + full - is.remaining) / full);
    }
    // the calls that ended while this one was in flight may still have been charged in full
    const whole = remaining + this.open + flying + is.lost + after, atMost = this.whole - keptOf(this.least, this.endedSince);
    const over = another || is.remaining > atMost;
    if (over || whole < atMost) {
      const ended = this.endedSince - after;
      if (!over && !refused && ended > 0) {
        this.most = max(this.most, min((this.whole - whole) / ended, 1));
        this.seen = true;
      }
      this.whole = over ? max(whole, is.remaining) : whole;
      this.endedSince = after;
    }
    this.read = ++this.tick;
  },

  learn(part) {
    if (part < 0) return; // a call whose end was not seen yet has given units back
    part = min(part, 1);
    this.guess = min(this.guess, part);
    this.seen = true;
    if (this.doubted) this.most = this.least = part;
    this.doubted = false;
    this.most = max(part, memory * this.most);
    this.least = this.known ? min(part, 1 - memory * (1 - this.least)) : part;
    this.known = true;
  },
};

/** @type {import('./types.js').settler} */
export const settler = ({ settlings, flying, slots }, limiter, windows, inFlight) => {
  const cost = /** @type {any} */ (limiter.cost);
  const all = windows.map(window => {
    if (!limiter.count && (!cost?.from || window.requests)) return;
    let one = settlings.get(window.key);
    if (!one) {
      const later = !!cost?.from?.startsWith('json:') && !window.requests; // else the head includes it
      settlings.set(window.key, one = Object.assign(Object.create(rules), { later, tick: 0, read: 0, ended: [], open: 0, most: 0, least: 0, guess: 0, known: false, seen: false, doubted: false, whole: 0, endedSince: 0 }));
    }
    return one;
  });
  let mine = inFlight ? slots.get(inFlight.key) : undefined;
  if (inFlight && !mine) slots.set(inFlight.key, mine = { limit: inFlight.limit, held: 0, queue: [], used: 0 });
  if (mine) mine.used = performance.now();
  const flown = (/** @type {number} */ i) => flying.get(windows[i].key) ?? 0;
  return {
    slots: mine,

    expect: (budgets, now, certain) => all.forEach((one, i) => {
      if (one) windows[i].back = certain ? 0 : one.back(budgets[i].remaining, flown(i), budgets[i].restored(now) - now > longWait);
    }),

    hope: () => all.forEach((one, i) => {
      if (one) windows[i].most = one.mostBack(flown(i));
    }),

    started: pass => {
      pass.ticks = all.map(one => one ? ++one.tick : 0);
    },

    answered: (pass, was, budgets, answer, bound) => {
      if (pass.resets) return; // the shared view failed after this
      const { fields, refused, kind } = answer, admitted = !refused && kind != 'lost' && kind != 'unsent';
      pass.resets = all.map((one, i) => {
        if (!one?.later) return 0;
        if (admitted) one.open += windows[i].cost;
        if (fields && i == bound) one.observe(pass.ticks?.[i] ?? 0, windows[i].cost, was[i], budgets[i], fields.remaining, flown(i), refused);
        return budgets[i].phase == 1 ? budgets[i].reset : 0;
      });
    },

    ended: (pass, views) => all.forEach((one, i) => {
      if (!one?.later) return;
      const view = views.get(windows[i].key), units = windows[i].cost;
      one.open -= units;
      if (view?.phase == 1 && view.reset == pass.resets?.[i]) one.end(units);
    }),

    refusedBySlots: fields => !!mine && !!fields && fields.limit == mine?.limit && fields.retry == 1000
      && (!fields.date || fields.reset - fields.date <= 1000) && windows.every(window => window.limit != mine?.limit),
  };
};

/** @type {import('./types.js').tryHold} */
export const tryHold = slots => slots.held < slots.limit && !slots.queue[0] && !!++slots.held;

/** @type {import('./types.js').hold} */
export const hold = async (slots, call, wait) => {
  const { queue } = slots;
  if (slots.held >= slots.limit || queue[0]) {
    queue.push(call);
    try {
      while (queue[0] != call || slots.held >= slots.limit) await wait();
    } catch (error) {
      queue.splice(queue.indexOf(call), 1);
      queue[0]?.wake?.();
      throw error;
    }
    queue.shift();
  }
  slots.held++;
  queue[0]?.wake?.(); // there may be room for it too
};

/** @type {import('./types.js').release} */
export const release = slots => {
  slots.used = performance.now();
  slots.held--;
  slots.queue[0]?.wake?.();
};

/** @type {import('./types.js').untilEnded} */
export const untilEnded = (response, signal, ended) => {
  let open = true;
  const over = () => {
    if (!open) return;
    open = false;
    signal.removeEventListener('abort', over);
    ended();
  };
  if (!response.body) {
    over();
    return response;
  }
  signal.addEventListener('abort', over);
  if (signal.aborted) over();
  const reader = response.body.getReader();
  const body = new ReadableStream({
    async pull(controller) {
      try {
        const { done, value } = await reader.read();
        if (!done) return controller.enqueue(value);
        controller.close();
        over();
      } catch (error) {
        over();
        throw error;
      }
    },
    cancel(reason) {
      over();
      return reader.cancel(reason);
    },
  }, { highWaterMark: buffered, size: chunk => chunk.byteLength }); // a short answer ends if nobody reads it
  const { status, statusText, headers, url, redirected, type } = response;
  const Class = /** @type {typeof Response} */ (response.constructor), copy = new Class(body, { status, statusText, headers });
  for (const [name, value] of Object.entries({ url, redirected, type })) Object.defineProperty(copy, name, { value });
  return copy;
};
