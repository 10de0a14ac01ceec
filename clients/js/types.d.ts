// The types of weir-pace. Times are in milliseconds, local times as Date.now() has them.

/** How to pace. Every option has a default. */
export interface Options {
  /** Which requests share a budget: routes in the form of a policy file, without parameters. Default: the contract's. */
  routes?: Limiter[];
  /** The fields that tell whose budget a request spends, if no route covers it. Default: authorization and x-api-key. */
  credentials?: string[];
  /** The longest wait before a request is sent, and again before each retry. 0 never waits. Default: 10 minutes. */
  maxWait?: number;
  /** How often a request is sent again after a 429. Default: 10. */
  retries?: number;
  /** A random delay up to this is added to a wait for a Reset. Default: 100. */
  jitter?: number;
  /** The units that must be left for a call to start; 0 uses everything. Default: 5, or a tenth of the limit if that is less. */
  threshold?: number;
  /** The local clock. Default: Date.now. */
  now?: () => number;
  /** The class that belongs to another fetch than the global one. Default: globalThis.Request. */
  Request?: typeof Request;
}

/** A limiter as a policy file has it. */
export interface Limiter {
  name: string;
  /** A method or none, a host or none, and a path that may have parameters and end in a star: "POST /api/leads", "/t/{tenant}/*", "api.example.com/*". */
  routes: string[];
  /** "60 per minute by token or ip", "30 per 10 seconds by ip+agent", "9 per calendar month in Asia/Tokyo by path:tenant". */
  windows?: string[];
  /** The units of a request, or what is reserved for one until its answer tells the rest. Default: 1. */
  cost?: number | { reserve?: number | { at_most?: number, [key: string]: unknown }, from?: string };
  /** Which answers count; the others give their units back. */
  count?: unknown;
  /** How many calls may be in flight: "4 by session or ip". */
  in_flight?: string;
}

/** Makes a fetch that waits for its budget, of a fetch. */
export function pace(options?: Options): (base?: (input: Request) => Promise<Response>) => Paced;

/** A fetch that waits for its budget, and tells of it. */
export type Fetch = (input: string | URL | Request, init?: RequestInit) => Promise<Response>;

export interface Paced extends Fetch {
  /** What is known of the budget of a request: of its window with the least left. */
  budget(input: string | URL | Request, init?: RequestInit): Promise<Standing>;
  addEventListener<T extends keyof Events>(type: T, listener: (event: Event & Events[T]) => void, options?: AddEventListenerOptions): void;
  removeEventListener<T extends keyof Events>(type: T, listener: (event: Event & Events[T]) => void): void;
}

export interface Standing {
  /** Whether the other values are known, of a window that is not over. */
  known: boolean;
  limit: number;
  /** Units left after the newest response. */
  remaining: number;
  /** Units of requests without an answer, of all tabs. */
  inFlight: number;
  /** When the budget is whole again. */
  reset: Date;
  /** How long a call would wait now. */
  wait: number;
}

export interface Events {
  /** A call begins to wait, or waits for another reason. */
  waiting: About;
  /** A 429 was received. */
  refused: { host: string; limiter: string; attempt: number; retryAfter: number; again: boolean };
  /** The view that the tabs share cannot be used: this tab paces itself alone. */
  alone: { reason: unknown };
}

export type Reason = 'spent' | 'refused' | 'probing' | 'slots';

export interface About {
  host: string;
  /** Empty if no route covers the request. */
  limiter: string;
  reason: Reason;
  /** From now, and until then. */
  wait: number;
  until: Date;
}

/** A request was not sent, because it would wait longer than maxWait. */
export class WaitError extends Error implements About {
  constructor(about: About);
  name: 'WaitError';
  host: string;
  limiter: string;
  reason: Reason;
  wait: number;
  until: Date;
}

// What follows is between the modules.

/** A window of a call: its key, what the routes declare (0 if none does), and what the call asks of it. */
export interface Window {
  key: string;
  limit: number;
  length: number;
  cost: number;
  tab: string;
  threshold?: number;
  /** Each call costs 1, whatever the limiter's cost is. */
  requests?: boolean;
  /** Units that have come back since the newest response, by an estimate, and that can come back at most. */
  back?: number;
  most?: number;
}

/** The requests that are charged to the same windows. */
export interface Line {
  key: string;
  windows: Window[];
  host: string;
  origin: string;
  limiter: string;
  /** Of the budget, if the server sends one. */
  name: string;
  family?: Family;
  /** Of a limiter that gives units back, or that has slots. */
  settles?: typeof import('./settling.js');
  settler?: Settler;
}

/** The lines of requests that no route covers. */
export interface Family {
  line(request: { method: string; url: string }): Line;
  /** Returns the line whose budget an answer describes, and remembers it for the path. */
  assign(request: { method: string; url: string }, line: Line, fields: Fields, views: Map<string, Budget>, now: number): Line;
}

/** What a response says of a budget: reset, or after if it states the time left. 0 is not stated. */
export interface Fields {
  name: string;
  limit: number;
  remaining: number;
  reset: number;
  after: number;
  date: number;
  retry: number;
}

/**
 * What came back for a call. kind is 'unsent' if it never reached the server, 'lost' if it may have
 * been charged, 'other' if the fields are of another window of the limiter, else 'silent'.
 */
export interface Answer {
  kind: 'unsent' | 'lost' | 'silent' | 'other';
  fields?: Fields;
  refused?: boolean;
  /** What a 429 asks to wait; 0 if it states none. */
  wait?: number;
}

export interface Sent {
  cost: number;
  place: number;
  at: number;
  now: number;
  length: number;
}

export interface Verdict {
  why: Reason;
  until: number;
}

export interface Started {
  at: number;
  /** In the order of starts, by window. */
  places: number[];
  /** Of the start, by window, and the Resets of the windows that the call was charged to. */
  ticks?: number[];
  resets?: number[];
}

/** What one tab has in flight. */
export interface Flight {
  tab: string;
  units: number;
  waiting: number;
  /** Units started in this window. */
  taken: number;
  at: number;
}

export interface State {
  /** 0 until the first response of a window, 1 until Reset, 2 if responses have no fields. */
  phase: number;
  /** 0: not known yet. */
  limit: number;
  /** Units left after the newest response. If atMost is 1, answers in flight still reduce it. */
  remaining: number;
  atMost: number;
  /** On the server's clock. */
  reset: number;
  /** The local time by which reset has passed for certain. */
  ends: number;
  /** The largest distance of Reset in this window, and in the one before. */
  length: number;
  lengthWas: number;
  /** Units certainly left while the phase is 0. */
  least: number;
  /** Answers in a row without fields. */
  quiet: number;
  /** The local time before which no call starts. */
  blocked: number;
  /** The local times of the last answer, and of the first one in this window. */
  seen: number;
  opened: number;
  /** The server's clock is ahead by low to high, as was known at that local time; 0: never. */
  low: number;
  high: number;
  at: number;
  /** The starts; their number when the last answer was read, and when a window ended. */
  started: number;
  newest: number;
  turned: number;
  /** Units of requests without an answer, and the value of started when the last of them was lost. */
  lost: number;
  lostAt: number;
  /** Requests that ask what is left of a new window, and the local time of the first. */
  probes: number;
  probing: number;
  /** Units of this side and of others, halved from window to window. */
  own: number;
  foreign: number;
  /** Units left before the first of own, and own of this window alone. */
  base: number;
  charged: number;
  /** The local time of the last change. */
  used: number;
  flights: Flight[];
}

export interface Rules {
  inFlight(): number;
  /** The requests of one tab: units in flight, and calls that wait. A tab without an update for a minute has gone. */
  setFlight(tab: string, units: number, waiting: number, now: number): void;
  /** What a dead tab had in flight may have been charged. */
  bury(alive: Set<string | undefined>): void;
  /** Whether a tab may start more in the first second of a window. Each that waits gets its share first. */
  fair(ask: Window, now: number): boolean;
  /** Ends a window that is over. */
  expire(now: number): void;
  decay(): void;
  /** The local time at which the window has ended for certain. */
  restored(now: number): number;
  /** Why a call may not start now, and until when. */
  mayNot(ask: Window, now: number): Verdict | undefined;
  /** One call asks what is left of a new window; while it is not answered, twice as many after each second. */
  mayNotProbe(ask: Window, now: number): Verdict | undefined;
  /** Whether a call fits if so much was left, what is in flight is charged, and others spend as before. */
  fits(left: number, ask: Window): boolean;
  mustLeave(ask: Window): number;
  /** How many units others spend while this side spends one. */
  others(): number;
  byOthers(): number;
  /** Counts a start, and returns its place in the order. */
  begin(ask: Window, now: number): number;
  /** Handles an answer. Returns the local time at which a refused call can be sent again, or 0. */
  learn(sent: Sent, answer: Answer): number;
  noFields(sent: Sent): void;
  notSent(sent: Sent): void;
  /** The fields describe another window of the limiter: this one has at least as much left. */
  otherBinds(sent: Sent, fields: Fields, refused?: boolean): void;
  /** Handles fields. Returns the local time of Reset, or 0 if that is not credible. */
  observe(sent: Sent, fields: Fields, refused?: boolean): number;
  /** How far ahead a credible Reset is, else 0. */
  distance(reset: number, after: number, date: number, sent: Sent): number;
  open(limit: number, remaining: number, reset: number, now: number): void;
  /** After a 429 that only says how long to wait. */
  block(now: number, wait: number): void;
  /** When the n-th call from now can start at the earliest. */
  earliest(ask: Window, now: number, n: number): number;
  /** How far the clocks may have drifted apart since the bounds were set. */
  drift(now: number): number;
  /** Handles a Date: the second of a decision between a request and its answer. Returns whether it contradicts the bounds. */
  saw(date: number, sent: number, now: number): boolean;
  /** The latest local time at which the server's clock reaches a time. */
  reaches(time: number, now: number): number;
  /** The earliest second that the server's clock can show. */
  serverTime(now: number): number;
}

export type Budget = State & Rules;
export type Methods = Rules & ThisType<Budget>;

/** The budget of a stored state; a new one if there is none, or it cannot be true. */
export function revive(stored: State | undefined, declared: number, now: number): Budget;
/** Counts a call in all windows of its line, or in none. */
export function take(budgets: Budget[], windows: Window[], at: number): Started | Verdict;
/** Handles the answer to a call. Returns the local time at which a refused one can be sent again, or 0. */
export function settle(budgets: Budget[], windows: Window[], started: Started, answer: Answer, now: number): number;
/** The window that the fields describe: one with their limit, else the shortest that is long enough. */
export function binding(budgets: Budget[], windows: Window[], fields: Fields, now: number): number;

export type Texts = { get(name: string): string | null; has(name: string): boolean };
/** Returns NaN for what it does not accept. */
export function parse(text: string | null | undefined): number;
export function contractFields(headers: Texts, dateOf?: typeof parse): Fields | undefined;
export function retryAfter(headers: Texts): number;
export function read(response: { headers: Texts; status: number }): { fields?: Fields; wait: number };
export type Found = Pick<Fields, 'name' | 'limit' | 'remaining' | 'reset' | 'after'>;
export function dialect(names: string[], get: Texts['get'], date: number, wait: number): Found | undefined;
export function list(text: string | null, policy: string | null): Found | undefined;
export function members(text: string): Record<string, Record<string, number>> | undefined;

export function fold(path: string): string;
export function find(limiters: Limiter[], method: string, url: string): { limiter: Limiter, values: Record<string, string> } | undefined;
export function claims(token: string): Record<string, any>;
export function claim(token: string, name: string): string | false | undefined;
export function walk(from: Record<string, any>, parts: string[]): unknown;
export function only(all: string[]): string | null | undefined;
export function limiterOf(limiters: Limiter[], method: string, url: string): Limiter | undefined;
export function answer(request: Request, source: string, streams?: boolean): Promise<string | false | null | undefined>;
export function windowsOf(request: Request, origin: string, limiter: Limiter | undefined, credentials: string[], streams?: boolean): Promise<Pick<Window, 'key' | 'limit' | 'length' | 'requests'>[]>;

/** What a window gets back after the answers of its calls, as far as this tab has seen. */
export interface SettlingState {
  /** Units come back when an answer has ended. Else its fields include what it costs. */
  later: boolean;
  /** Orders starts, ends and responses; read is that of the newest response. */
  tick: number;
  read: number;
  /** The calls that have ended and that no response includes for certain. */
  ended: { tick: number, units: number }[];
  /** Units of the calls whose responses are there and whose bodies have not ended. */
  open: number;
  /** The parts of their charge that calls keep at most and at least, if known. */
  most: number;
  least: number;
  /** The part that a call is taken to have kept if nothing is in flight and the Reset is far away. */
  guess: number;
  known: boolean;
  /** Whether a call of this window has shown what it kept, and whether some window since they were learned has not. */
  seen: boolean;
  doubted: boolean;
  /** What is left and what calls that have not ended are charged, as a response has shown it, and the units of the calls that have ended since. */
  whole: number;
  endedSince: number;
}

export interface SettlingRules {
  back(remaining: number, flying: number, long: boolean): number;
  mostBack(flying: number): number;
  end(units: number): void;
  observe(tick: number, cost: number, was: State, is: State, remaining: number, flying: number, refused?: boolean): void;
  learn(part: number): void;
}

export type Settling = SettlingState & SettlingRules;

/** The calls of one caller that may be in flight at a time, and those that wait for one of its slots. */
export interface Slots {
  limit: number;
  held: number;
  queue: Call[];
  /** When a call last had to do with them, as performance.now has it. */
  used: number;
}

/** What comes back to the windows of one call. */
export interface Settler {
  slots?: Slots;
  /** Before the windows are asked: what has come back, if the call may start on a guess. */
  expect(budgets: Budget[], now: number, certain: boolean): void;
  /** Before a wait is judged: what can come back. */
  hope(): void;
  started(pass: Started): void;
  answered(pass: Started, was: State[], budgets: Budget[], answer: Answer, bound: number): void;
  ended(pass: Started, views: Map<string, Budget>): void;
  /** Whether a 429 is that of the limit in flight. */
  refusedBySlots(fields?: Fields): boolean;
}

export function costOf(limiter: Limiter): number;
export function settler(memory: Pick<Memory, 'settlings' | 'flying' | 'slots'>, limiter: Limiter, windows: Window[], inFlight?: { key: string, limit: number }): Settler;
/** Waits for a slot. wait throws if the call cannot wait any longer. */
export function hold(slots: Slots, call: Call, wait: () => Promise<void>): Promise<void>;
/** Takes a slot if one is free and no call waits for it. */
export function tryHold(slots: Slots): boolean;
export function release(slots: Slots): void;
/** Calls ended once when the body of a response has ended, is cancelled, or the signal is aborted. Returns a response with that body. */
export function untilEnded(response: Response, signal: AbortSignal, ended: () => void): Response;

export function placeOf(request: { method: string; url: string }): string;
export function familyOf(first: Line): Family;
export function describes(budget: Budget | undefined, fields: Fields, now: number): boolean;

/** The view that the tabs share: changes the budgets of some windows, atomically. If it is news, the waiting calls of other tabs ask again. */
export type Shared = <T>(windows: Window[], change: (budgets: Budget[], now: number) => T, news: boolean) => Promise<[T, Budget[]]>;
export function share(tab: string, now: () => number, wake: () => void): Promise<Shared>;

export interface Memory {
  /** By keys of windows: what is known, and what this tab has in flight. */
  views: Map<string, Budget>;
  flying: Map<string, number>;
  /** By keys of lines: the calls that wait, in order. */
  queues: Map<string, Call[]>;
  families: Map<string, Family>;
  /** What comes back, by keys of windows, and the slots of each caller. */
  settlings: Map<string, Settling>;
  slots: Map<string, Slots>;
  /** The name of this tab among the others. */
  tab: string;
  /** How many calls there were, and changes of budgets. */
  calls: number;
  changes: number;
  /** The view of all tabs, once it is asked for. */
  sharing?: Promise<Shared | void>;
  /** Why this tab paces itself alone, and the local time of the last failure. */
  alone?: unknown;
  failed: number;
  /** The number of views from which on those that are over are dropped. */
  most: number;
}

export interface Call {
  request: Request;
  ticket: number;
  /** When it gives up waiting, as performance.now has it. */
  giveUp: number;
  told: string;
  /** It starts on no guess any more, because it was refused often. */
  certain: boolean;
  wake?: () => void;
}

export type Pass = Started & { line: Line };
export function tell<T extends keyof Events>(type: T, about: Events[T]): void;
/** calls is how many start (or, if negative, end) with the change. */
export function update<T>(line: Line, change: (budgets: Budget[], now: number) => T, calls?: number): Promise<T>;
/** streams is whether the body can be read only once. */
export function lineOf(request: Request, streams?: boolean): Promise<Line>;
export function member(family: Family, request: { method: string; url: string }): Line;
export function sleep(call: Call, wait: number): Promise<void>;
export function notify(call: Call, line: Line, why: Reason, until: number, soonest: number, waits?: boolean): void;
/** waits is called before each wait. */
export function enter(call: Call, line: Line, waits: () => void): Promise<Pass>;
export function finish(request: Request, pass: Pass, answer: Answer): Promise<number>;
