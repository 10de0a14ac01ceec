<?php

declare(strict_types=1);

namespace Weir\Pacer;

/**
 * What is known of one window of one caller. It holds the whole arithmetic of pacing, without a
 * clock or I/O. $now is a local time in nanoseconds. Units are what a window counts.
 *
 * It is the Go package pacer's budget.go in PHP; the table in pacer/testdata holds the two equal.
 *
 * @internal
 */
final class Budget
{
    /** The first response will show it. */
    public const UNKNOWN = 0;
    /** Known until reset. */
    public const KNOWN = 1;
    /** Responses have no fields, so no call waits. */
    public const SILENT = 2;

    /** Seconds; no Reset is further away: a month has 31 days, and clocks may be set back in it. */
    public const LONGEST_WINDOW = 32 * 24 * 3600;

    /** A number of calls that is never reached. */
    public const ENDLESS = PHP_INT_MAX >> 2;

    /** The largest count that is kept: sums of a few of them stay integers. */
    public const MOST = PHP_INT_MAX >> 5;

    /**
     * How long what another process has in flight is kept without an update: after that the process
     * has ended, or the server has charged it long ago.
     */
    private const FLIGHT_LIFE = 60 * Clock::SECOND;

    private const MAX_FLIGHTS = 64;
    private const VERSION = 1;
    private const FIXED = 3 + 28 * 8;

    public int $phase = self::UNKNOWN;
    /** 0: not known yet. */
    public int $limit = 0;
    /** Units left after the request of the newest response. */
    public int $remaining = 0;
    /** Unix seconds on the server's clock. */
    public int $reset = 0;
    /** Local time by which reset has passed for certain. */
    public int $ends = 0;
    /** Seconds; the largest distance of Reset that was seen in this window. */
    public int $length = 0;
    /** The same of the window before. */
    public int $lengthWas = 0;
    /** remaining, or minRemaining, is an upper bound: answers in flight still reduce it. */
    public bool $upperBound = false;
    /** Units certainly left while the phase is unknown: a window that binds had that many. */
    public int $minRemaining = 0;
    /** Consecutive answers without fields where fields are expected. */
    public int $silentAnswers = 0;
    /** Local time before which no call starts, after a 429 without fields. */
    public int $blocked = 0;
    /** Local time of the last update; over a second ahead of now: the local clock was set back. */
    public int $seen = 0;
    /** Local time at which this window was first seen or, while unknown, the last one ended. */
    public int $opened = 0;
    public Clock $clock;

    /**
     * Counts the starts, and the ends of calls that Settling counts, and so orders them: a response
     * is newer than another if its request started after the other was read. newest is started when
     * the last response was read; turned is started when a window ended.
     */
    public int $started = 0;
    public int $newest = 0;
    public int $turned = 0;

    /**
     * What each process has in flight, the last updated last.
     *
     * @var list<array{process: int, units: int, waiting: int, taken: int, at: int}>
     */
    public array $flights = [];
    /** Units of requests without an answer, which may have been charged. */
    public int $lost = 0;
    /** started when the last of them was lost. */
    public int $lostAt = 0;

    /** Requests that were sent to learn what is left of a new window, and are not answered. */
    public int $probes = 0;
    /** Local time of the first of them, or of the last answer to one. */
    public int $probing = 0;

    /**
     * Since the first response in this window: units that this side was charged, and units that
     * others must have been charged. Both are halved from window to window.
     */
    public float $own = 0.0;
    public float $foreign = 0.0;
    /** Units left before the first of own. */
    public int $base = 0;
    /** own, in this window only. */
    public int $charged = 0;

    public function __construct()
    {
        $this->clock = new Clock();
    }

    public function __clone()
    {
        $this->clock = clone $this->clock;
    }

    /** Returns the units in flight, of all processes. */
    public function inFlight(): int
    {
        $n = 0;
        foreach ($this->flights as $f) {
            $n += $f['units'];
        }

        return $n;
    }

    /**
     * Sets the units in flight and the waiting calls of a process, and drops processes that have
     * ended. Page views are short, so processes without any are dropped as soon as their share of
     * a window's first second does not matter any more. Of those that $settling has, it is known
     * that they live.
     */
    public function setFlight(int $process, int $units, int $waiting, int $now, ?Settling $settling = null): void
    {
        $kept = [];
        $own = ['process' => $process, 'units' => 0, 'waiting' => 0, 'taken' => 0, 'at' => 0];
        foreach ($this->flights as $f) {
            if ($f['process'] === $process) {
                $own = $f;
            } elseif (($now - $f['at'] < self::FLIGHT_LIFE || $settling?->has($f['process']))
                && ($f['units'] > 0 || $f['waiting'] > 0 || $f['taken'] > 0 && $now - $this->opened < Clock::SECOND)) {
                $kept[] = $f;
            }
        }
        $own['units'] = $units;
        $own['waiting'] = $waiting;
        $own['at'] = $now;
        $kept[] = $own;
        $this->flights = $kept;
    }

    /**
     * Reports whether a process may start more calls in the first second of a window for which
     * calls of several processes wait. Each process first gets its share; otherwise the quickest
     * would spend everything.
     */
    private function fair(Ask $a, int $now): bool
    {
        if (count($this->flights) < 2 || $now - $this->opened >= Clock::SECOND) {
            return true;
        }
        $wanting = 1;
        $taken = 0;
        foreach ($this->flights as $f) {
            if ($f['process'] === $a->process) {
                $taken = $f['taken'];
            } elseif ($f['waiting'] > 0 && $now - $f['at'] < Clock::SECOND) {
                $wanting++;
            }
        }

        return $wanting === 1
            || $taken < max(intdiv($this->limit - $a->mustLeave($this->limit) + 1, $wanting), $a->cost);
    }

    /** Ends a window that is over. A probe then learns what is left of the next. */
    private function expire(int $now): void
    {
        if ($this->phase === self::KNOWN
            && ($now >= $this->restored($now) || $now < $this->seen - Clock::SECOND)) {
            $this->phase = self::UNKNOWN;
            $this->probes = 0;
            $this->minRemaining = 0;
            $this->turned = $this->started;
            $this->opened = $now;
            $this->decay();
        }
    }

    /** Moves this window's counts into the averages of earlier windows. */
    private function decay(): void
    {
        $foreign = ($this->foreign + $this->spentByOthers()) / 2;
        $this->own = ($this->own + $this->charged) / 2;
        $this->foreign = $foreign;
        $this->base = $this->remaining;
        $this->charged = 0;
        $this->lost = 0;
        foreach ($this->flights as &$f) {
            $f['taken'] = 0;
        }
    }

    /** Returns the local time of reset. */
    public function restored(int $now): int
    {
        return min($this->clock->reaches($this->reset, $now), $this->ends);
    }

    /**
     * Decides whether a call may start now. $back are the units that have come back since the
     * newest response, by an estimate.
     */
    public function canStart(Ask $a, int $now, int $back = 0): Verdict
    {
        if ($now < $this->seen - Clock::SECOND) {
            $this->blocked = 0; // the local clock was set back
        }
        if ($now < $this->blocked) {
            return Verdict::wait($this->blocked, Wait::REFUSED);
        }
        $this->expire($now);
        if ($this->phase === self::SILENT
            || $this->phase === self::UNKNOWN && $this->minRemaining > 0 && $this->fits($this->minRemaining, $a)) {
            return Verdict::start();
        }
        if ($this->phase === self::UNKNOWN) {
            return $this->mayProbe($a, $now);
        }
        if (!$this->fits(min($this->remaining + $back, max($this->limit, $this->remaining)), $a)) {
            return Verdict::wait($this->restored($now), Wait::SPENT);
        }
        if (!$this->fair($a, $now)) {
            return Verdict::wait(min($this->opened + Clock::SECOND, $this->restored($now)), Wait::SPENT);
        }

        return Verdict::start();
    }

    /**
     * Admits one request as a probe. While it is not answered, twice as many are admitted after
     * each second, so that a slow endpoint does not delay all calls.
     */
    private function mayProbe(Ask $a, int $now): Verdict
    {
        $elapsed = intdiv($now - $this->probing, Clock::SECOND);
        if ($this->probes === 0 || $elapsed < 0) {
            return Verdict::start();
        }
        $limit = $this->limit;
        $length = max($this->length, $this->lengthWas);
        if ($limit === 0) {
            $limit = $a->declaredLimit;
            $length = $a->declaredLength;
        }
        // a probe that is a whole window old does not count any more
        $over = $now - $this->opened >= $length * Clock::SECOND;
        if ($this->probes < 1 << min($elapsed, 30)
            && ($limit === 0 || $over || $this->fits($limit - $this->charged, $a))) {
            return Verdict::start();
        }

        return Verdict::wait($this->probing + ($elapsed + 1) * Clock::SECOND, Wait::PROBING);
    }

    /**
     * Reports whether a call may start if so many units were left. Units in flight may or may not
     * have been charged. If others spend too, their share of the spending gives an estimate of
     * their units in flight, doubled: what they had in flight when the newest response was decided,
     * and what they have sent since.
     */
    private function fits(int $left, Ask $a): bool
    {
        $mine = $this->inFlight() + $this->lost;
        $theirs = (int) min(ceil(2 * $this->others() * ($mine + $a->cost)), (float) ($this->limit >> 1));

        return $left - $mine - $theirs >= $a->mustLeave($this->limit);
    }

    /** Returns how many units others spend while this side spends one. */
    private function others(): float
    {
        $own = $this->own + $this->charged;
        $foreign = $this->foreign + $this->spentByOthers();

        return $own < 1 || $foreign < 1 ? 0.0 : $foreign / $own;
    }

    /**
     * Returns how many units of this window others were certainly charged since its first response.
     */
    private function spentByOthers(): int
    {
        return max($this->base - $this->remaining - $this->charged - $this->inFlight() - $this->lost, 0);
    }

    /** Counts a start, and returns its position in the order. The caller has set the flight. */
    public function begin(Ask $a, int $now): int
    {
        foreach ($this->flights as &$f) {
            if ($f['process'] === $a->process) {
                $f['taken'] += $a->cost;
            }
        }
        unset($f);
        if ($this->phase === self::UNKNOWN) {
            if ($this->probes === 0) {
                $this->probing = $now;
            }
            if ($this->opened === 0) {
                $this->opened = $now;
            }
            $this->probes++;
        }

        return ++$this->started;
    }

    /**
     * Handles the answer to one request. It returns the local time at which the reported budget is
     * restored, or at which a request can start that another limit has refused; 0 if the fields are
     * not credible.
     */
    public function learn(Sent $s, Answer $a): int
    {
        $until = 0;
        switch ($a->kind) {
            case Answer::UNSENT:
                $this->notSent($s);
                break;
            case Answer::LOST:
                $this->noAnswer($s);
                break;
            case Answer::NO_FIELDS:
                $this->noFields($s);
                break;
            case Answer::NONBOUND:
                $this->otherBound($s, $a->fields, $a->refused);
                break;
            case Answer::BINDING:
                $until = $this->observe($s, $a->fields, $a->refused);
                if ($until > 0 && $a->refused && $s->fitted($a->fields)) {
                    return $this->blockedByAnother($s->now, $a->wait, $until);
                }
        }
        if ($a->refused && $until === 0 && $a->wait > 0 && $a->kind !== Answer::NONBOUND) {
            $this->block($s->now, $a->wait);
        }

        return $until;
    }

    /**
     * Handles an answer without fields. It does not come from the limiter, which sends them with
     * every answer.
     */
    private function noFields(Sent $s): void
    {
        if ($this->phase !== self::UNKNOWN || $s->place <= $this->turned) {
            return;
        }
        $this->silentAnswers++;
        if ($this->limit === 0 || $this->silentAnswers >= 3) { // a proxy may answer now and then
            $this->phase = self::SILENT;
            $this->probes = 0;

            return;
        }
        $this->notSent($s);
    }

    /** Handles a request without an answer. It may have been charged. */
    private function noAnswer(Sent $s): void
    {
        if ($this->phase === self::KNOWN) {
            $this->lost += $s->cost;
            $this->lostAt = $this->started;
        }
        $this->notSent($s);
    }

    /** Handles a request that never reached the server: another one can probe in its place. */
    private function notSent(Sent $s): void
    {
        if ($this->phase === self::UNKNOWN && $s->place > $this->turned) {
            $this->probes = max($this->probes - 1, 0);
        }
    }

    /**
     * Handles a request that was charged while another window of its limiter has less left, so that
     * window's Remaining is a lower bound for this one.
     */
    private function otherBound(Sent $s, Report $binding, bool $refused): void
    {
        $known = $this->phase === self::KNOWN;
        $left = $known ? $this->remaining : $this->minRemaining;
        if ($this->phase === self::SILENT) {
            $this->phase = self::UNKNOWN;
            $this->probes = 0;
            $left = 0;
        }
        $this->notSent($s);
        $this->probing = $s->now;
        if (!$refused) {
            $left = max($left - $s->cost, 0);
            $this->charged += $s->cost;
        }
        $this->upperBound = true;
        if ($s->place > max($this->newest, $this->turned)) {
            $left = max($left, min($binding->remaining, self::MOST));
        }
        if ($known) {
            $this->remaining = $left;
        } else {
            $this->minRemaining = $left;
        }
        $this->newest = $this->started;
    }

    /**
     * Handles the fields of a response. It returns the local time of its Reset, or 0 if that is not
     * credible; then only the phase may change.
     */
    private function observe(Sent $s, Report $reported, bool $refused): int
    {
        $f = clone $reported;
        $f->limit = min($f->limit, self::MOST);
        $f->remaining = min($f->remaining, self::MOST);
        $date = $f->date;
        if ($f->limit === 0 && $f->after > 0) { // no limit is stated: it is at least what was left
            $f->limit = max($this->limit, $f->remaining, 1);
        }
        if ($date === 0 && $f->retryAfter > 0 && !$s->fitted($f)) {
            $date = $f->reset - $f->retryAfter; // Retry-After is Reset minus the refusal's second
        }
        $left = $this->distance($f, $s->now, $s->length, $date);
        if ($left === null) {
            $this->noFields($s);

            return 0;
        }
        if ($date > 0 && $this->clock->saw($date, $s->at, $s->now)) {
            $this->length = $this->lengthWas = 0; // they were measured with another clock
        }
        $f->remaining = min($f->remaining, $f->limit);
        if ($refused && !$s->fitted($f)) {
            $f->remaining = 0;
        }
        if ($s->place > $this->lostAt) { // the remaining units show whether they were charged
            $this->charged += $this->lost;
            $this->lost = 0;
        }
        $this->silentAnswers = 0;
        $until = $this->ending($f, $s->now, $left);
        $this->expire($s->now);
        $newer = $s->place > $this->newest;
        if ($this->clock->set && $this->clock->reaches($f->reset, $s->now) <= $s->now) {
            $this->notSent($s); // the window is already over

            return max($s->now, 1);
        }
        if ($this->phase !== self::KNOWN) {
            if (!$newer) { // it may not include what was answered since
                $f->remaining = min(
                    $f->remaining,
                    max($f->remaining - $this->charged, $this->minRemaining - $s->cost, 0),
                );
            }
            $this->open($f, $s->now);
            $this->upperBound = !$newer;
        } elseif ($f->reset === $this->reset && $f->limit === $this->limit) {
            $this->goOn($s, $f->remaining, $refused, $newer);
        } elseif ($newer) {
            $this->open($f, $s->now);
            $this->upperBound = false;
        } else { // of a window that is over, or of one that began earlier than expected
            if ($f->limit === $this->limit && $f->reset > $this->reset) {
                $this->remaining = min($this->remaining, $f->remaining);
            }
            $this->newest = $this->started;

            return max($this->clock->reaches($f->reset, $s->now), 1);
        }
        $this->newest = $this->started;
        $this->seen = $s->now;
        $this->ends = $until;
        $this->length = max($this->length, $left);

        return max($this->restored($s->now), 1);
    }

    /**
     * Returns the local time by which the Reset of a response has passed for certain. If the
     * response states the time left, ending sets Reset so that it is the same for all responses of
     * one window, which differ by rounding.
     */
    private function ending(Report $f, int $now, int $left): int
    {
        if ($f->after === 0) {
            return $now + ($left + 1) * Clock::SECOND;
        }
        $date = $f->date > 0 ? $f->date : $this->clock->now($now);
        $f->reset = $date + $left + 1;
        $until = $now + $f->after;
        if ($this->phase === self::KNOWN && $f->limit === $this->limit && abs($f->reset - $this->reset) <= 1) {
            $f->reset = $this->reset;
            $until = min($until, $this->ends);
        }

        return $until;
    }

    /** Returns how many seconds Reset is ahead, or null if that is not credible. */
    private function distance(Report $f, int $now, int $length, int $date): ?int
    {
        if ($f->limit < 1 || $f->reset < 1 && $f->after < 1) {
            return null;
        }
        if ($f->after > 0) {
            $seconds = intdiv($f->after - 1, Clock::SECOND) + 1;
        } elseif ($date > 0) {
            $seconds = $f->reset - $date;
        } elseif ($this->clock->set) {
            $seconds = $f->reset - $this->clock->now($now);
        } else {
            $seconds = $f->reset - intdiv($now, Clock::SECOND);
            if ($length > 0) {
                $seconds = min($seconds, $length); // the local clock is slow
            }
        }

        return 0 < $seconds && $seconds <= self::LONGEST_WINDOW ? (int) $seconds : null;
    }

    /** Starts a window from the first response that describes it. */
    private function open(Report $f, int $now): void
    {
        if ($this->phase === self::KNOWN) {
            $this->decay();
        }
        $this->lengthWas = $this->limit === $f->limit ? $this->length : 0;
        $this->length = 0;
        $this->phase = self::KNOWN;
        $this->probes = 0;
        $this->opened = $now;
        $this->limit = $f->limit;
        $this->remaining = $this->base = $f->remaining;
        $this->reset = $f->reset;
        $this->charged = 0;
    }

    /**
     * Handles another response of the same window. It keeps the smaller Remaining, unless it is
     * certain which is newer.
     */
    private function goOn(Sent $s, int $remaining, bool $refused, bool $newer): void
    {
        if (!$refused) {
            $this->charged += $s->cost;
        }
        if ($newer) {
            // units were given back
            $this->base = min($this->base + max($remaining - $this->remaining, 0), self::MOST);
            $this->remaining = $remaining;
            $this->upperBound = false;
        } elseif ($this->upperBound && !$refused) {
            $this->remaining = max(min($this->remaining - $s->cost, $remaining), 0);
        } else {
            $this->remaining = min($this->remaining, $remaining);
        }
    }

    /** Stops all starts for a time, after a 429 that states only how long to wait. */
    private function block(int $now, int $wait): void
    {
        $this->blocked = max($this->blocked, $now + $wait);
        $this->seen = $now;
        if ($this->phase === self::SILENT) {
            $this->phase = self::UNKNOWN;
            $this->probes = 0;
        }
    }

    /**
     * Blocks the budget after a 429 of a limit without fields. It returns the local time at which
     * requests can start again: after the wait, or, if the 429 states none, after a minute or when
     * the budget is restored, whichever is sooner.
     */
    private function blockedByAnother(int $now, int $wait, int $restored): int
    {
        if ($wait === 0) {
            $wait = min(60 * Clock::SECOND, max($restored - $now, 0));
        }
        $this->block($now, $wait);

        return max($now + $wait, 1);
    }

    /**
     * Returns how many calls of this cost could start between now and then, if no one else spent
     * anything.
     */
    public function capacity(Ask $a, int $now, int $then): int
    {
        if ($then < $this->blocked && $now >= $this->seen - Clock::SECOND) {
            return 0;
        }
        if ($this->phase === self::SILENT || $this->limit === 0) {
            return self::ENDLESS;
        }
        $must = $a->mustLeave($this->limit);
        $calls = static fn (int $left): int => $left < $must ? 0 : intdiv($left - $must, $a->cost) + 1;
        $from = $now;
        $n = 0;
        if ($this->phase === self::KNOWN && $now < $this->restored($now) && $now >= $this->seen - Clock::SECOND) {
            $from = $this->restored($now);
            $n = $calls($this->remaining - $this->inFlight() - $this->lost);
        }
        if ($then >= $from) {
            $length = max($this->length, $this->lengthWas, 1) * Clock::SECOND;
            $windows = 1 + intdiv($then - $from, $length);
            $n += min(max($calls($this->limit), 1), intdiv(self::ENDLESS, $windows)) * $windows;
        }

        return min($n, self::ENDLESS);
    }

    /**
     * Returns this budget with the largest values that are possible: units in flight or lost have
     * already been charged, $back units come back, and windows are no longer than is known now.
     */
    public function optimistic(int $back = 0): self
    {
        $b = clone $this;
        $b->remaining = max($b->remaining, min($b->remaining + $back, $b->limit));
        $b->flights = [];
        $b->lost = 0;
        $b->lengthWas = 0;
        if ($b->phase === self::UNKNOWN) {
            $b->length = 0;
        }

        return $b;
    }

    /** Reports whether a response can be about this budget. */
    public function describes(Report $reported, int $now): bool
    {
        if ($this->limit === 0) {
            return true; // nothing is known of it
        }
        if ($reported->limit !== 0 && min($reported->limit, self::MOST) !== $this->limit) {
            return false;
        }
        if ($this->phase !== self::KNOWN || $now >= $this->restored($now)) {
            return true; // the next window may be restored at any time
        }
        if ($this->distance($reported, $now, 0, $reported->date) === null) {
            return true; // the response will not be believed
        }
        $restored = $now + $reported->after;
        if ($reported->after === 0) {
            $restored = $reported->date > 0 && !$this->clock->set
                ? $now + Clock::nanos($reported->reset - $reported->date)
                : $this->clock->reaches($reported->reset, $now);
        }

        return abs($restored - $this->restored($now)) <= $now - $this->seen + 2 * Clock::SECOND;
    }

    /** Reports whether the budget can be forgotten without a loss. */
    public function idle(int $now): bool
    {
        return $now >= $this->blocked && ($this->phase !== self::KNOWN || $now >= $this->restored($now));
    }

    /** Returns the budget as bytes: a version, the fields in order, the flights. */
    public function encode(): string
    {
        $flights = $this->flights;
        if (count($flights) > self::MAX_FLIGHTS) {
            $flights = self::merged($flights);
        }
        $flat = [];
        foreach ($flights as $f) {
            $flat[] = $f['process'];
            $flat[] = $f['units'];
            $flat[] = $f['waiting'];
            $flat[] = $f['taken'];
            $flat[] = $f['at'];
        }

        return pack(
            'CnP26e2P*',
            self::VERSION,
            count($flights),
            $this->phase,
            $this->limit,
            $this->remaining,
            $this->reset,
            $this->ends,
            $this->length,
            $this->lengthWas,
            (int) $this->upperBound,
            $this->minRemaining,
            $this->silentAnswers,
            $this->blocked,
            $this->seen,
            $this->opened,
            $this->clock->low,
            $this->clock->high,
            $this->clock->at,
            (int) $this->clock->set,
            $this->started,
            $this->newest,
            $this->turned,
            $this->lost,
            $this->lostAt,
            $this->probes,
            $this->probing,
            $this->base,
            $this->charged,
            $this->own,
            $this->foreign,
            ...$flat,
        );
    }

    /**
     * Replaces the flights that were updated first by one: their units are not forgotten.
     *
     * @param list<array{process: int, units: int, waiting: int, taken: int, at: int}> $flights
     *
     * @return list<array{process: int, units: int, waiting: int, taken: int, at: int}>
     */
    private static function merged(array $flights): array
    {
        $surplus = array_splice($flights, 0, count($flights) - self::MAX_FLIGHTS + 1);
        $one = ['process' => 0, 'units' => 0, 'waiting' => 0, 'taken' => 0, 'at' => 0];
        foreach ($surplus as $f) {
            $one['units'] += $f['units'];
            $one['waiting'] += $f['waiting'];
            $one['at'] = max($one['at'], $f['at']);
        }

        return [$one, ...$flights];
    }

    /**
     * Returns the budget of a state, or null if the state has another version or impossible values.
     * What follows the budget in the state is put in $rest.
     */
    public static function decode(string $state, ?string &$rest = null): ?self
    {
        $rest = '';
        if (strlen($state) < self::FIXED || $state[0] !== chr(self::VERSION)) {
            return null;
        }
        $v = unpack('Cversion/ncount/P26f/e2s', $state);
        $n = $v['count'];
        $end = self::FIXED + 40 * $n;
        if ($n > self::MAX_FLIGHTS || strlen($state) < $end) {
            return null;
        }
        $b = new self();
        $b->phase = $v['f1'];
        $b->limit = $v['f2'];
        $b->remaining = $v['f3'];
        $b->reset = $v['f4'];
        $b->ends = $v['f5'];
        $b->length = $v['f6'];
        $b->lengthWas = $v['f7'];
        $b->upperBound = $v['f8'] === 1;
        $b->minRemaining = $v['f9'];
        $b->silentAnswers = $v['f10'];
        $b->blocked = $v['f11'];
        $b->seen = $v['f12'];
        $b->opened = $v['f13'];
        $b->clock->low = $v['f14'];
        $b->clock->high = $v['f15'];
        $b->clock->at = $v['f16'];
        $b->clock->set = $v['f17'] === 1;
        $b->started = $v['f18'];
        $b->newest = $v['f19'];
        $b->turned = $v['f20'];
        $b->lost = $v['f21'];
        $b->lostAt = $v['f22'];
        $b->probes = $v['f23'];
        $b->probing = $v['f24'];
        $b->base = $v['f25'];
        $b->charged = $v['f26'];
        $b->own = $v['s1'];
        $b->foreign = $v['s2'];
        if ($n > 0) {
            $flat = array_values(unpack('P'.(5 * $n), $state, self::FIXED));
            for ($i = 0; $i < 5 * $n; $i += 5) {
                $b->flights[] = ['process' => $flat[$i], 'units' => $flat[$i + 1], 'waiting' => $flat[$i + 2],
                    'taken' => $flat[$i + 3], 'at' => $flat[$i + 4]];
            }
        }
        $rest = substr($state, $end);

        return $b->valid() ? $b : null;
    }

    /** Reports whether all values are in a range that arithmetic can use. */
    private function valid(): bool
    {
        foreach ([$this->limit, $this->remaining, $this->minRemaining, $this->silentAnswers, $this->lost,
            $this->probes, $this->base, $this->charged] as $units) {
            if ($units < 0 || $units > self::MOST) {
                return false;
            }
        }
        foreach ($this->flights as $f) {
            foreach ([$f['units'], $f['waiting'], $f['taken']] as $n) {
                if ($n < 0 || $n > intdiv(self::MOST, self::MAX_FLIGHTS)) {
                    return false;
                }
            }
        }
        foreach ([$this->own, $this->foreign] as $share) {
            if (!($share >= 0 && $share < self::ENDLESS)) {
                return false;
            }
        }
        foreach ([$this->ends, $this->blocked, $this->seen, $this->opened, $this->probing,
            $this->clock->low, $this->clock->high, $this->clock->at] as $at) {
            if ($at < -self::ENDLESS * 2 || $at > self::ENDLESS * 2) {
                return false;
            }
        }
        $longest = (self::LONGEST_WINDOW + 1) * Clock::SECOND;
        if ($this->ends - $this->seen > $longest || $this->blocked - $this->seen > $longest) {
            return false; // no wait is longer than a window
        }

        return $this->phase >= self::UNKNOWN && $this->phase <= self::SILENT
            && $this->length >= 0 && $this->length <= self::LONGEST_WINDOW
            && $this->lengthWas >= 0 && $this->lengthWas <= self::LONGEST_WINDOW
            && $this->reset >= 0 && $this->reset <= self::MOST
            && $this->started >= 0 && $this->started <= self::MOST;
    }

    /**
     * Reports whether a state can be current: the clock was not set back since, and no window is
     * too long.
     */
    public function plausible(int $now): bool
    {
        foreach ($this->flights as $f) {
            if ($f['at'] > $now + Clock::SECOND) {
                return false;
            }
        }
        $latest = $now + (self::LONGEST_WINDOW + 2) * Clock::SECOND;

        return $this->seen <= $now + Clock::SECOND && $this->ends <= $latest
            && $this->blocked <= $latest && $this->probes < 1 << 30;
    }
}
