<?php

declare(strict_types=1);

namespace Weir\Pacer;

/**
 * Keeps the caller's side of rate limits: a call starts only while there is budget for it. The
 * budgets are learned from the responses.
 *
 *     $result = $pacer->admit($call);
 *     if ($result instanceof Wait) {
 *         // not now: $result->until is when to come back
 *     } else {
 *         // send it, then
 *         $again = $pacer->answered($result, $status, $headers);
 *     }
 *
 * Each Pass ends in one call of answered, lost or unsent; or in began and ended, if the head of an
 * answer comes before its body. Nothing here sleeps but a Store, for the some milliseconds that its
 * constructor names. The processes that share a credential share a Store; without one a Pacer sees
 * its own calls only.
 */
final class Pacer
{
    private const MAX_WINDOWS = 1024;

    /** How far ahead an estimate looks: a century, in nanoseconds. */
    private const MAX_ESTIMATE = 100 * 365 * 24 * 3600 * Clock::SECOND;

    private readonly Routes $routes;
    /** @var \Closure(int): int */
    private readonly \Closure $threshold;
    private int $process;
    private int $pid;

    /** @var array<string, Window> */
    private array $windows = [];
    /** @var array<string, Slots> */
    private array $slots = [];
    /** @var ?\WeakMap<self, true> those that may hold something that others wait for */
    private static ?\WeakMap $holders = null;
    /** The number of windows at which those that can be forgotten are looked for. */
    private int $sweepAt = self::MAX_WINDOWS;
    /** Unix nanoseconds less hrtime, at the construction. */
    private readonly int $origin;
    /** Local time before which the store is not used again. */
    private int $away = 0;
    private ?\Throwable $failure = null;
    /** Why the store failed, until it gives slots again; empty: it has not. */
    private string $trouble = '';

    /**
     * @param ?Store                     $store          what the processes share; null: nothing
     * @param ?Routes                    $routes         which requests share a budget; null: the
     *                                                   contract's. Requests that no route covers
     *                                                   share one for each host and credential
     * @param int|\Closure(int): int|null $threshold     the units that must be left for a call to
     *                                                   start, or a function from the limit to
     *                                                   them; null: 5, or a tenth of the limit
     *                                                   rounded up if that is less; 0 uses all
     * @param list<string>               $credentials    the request fields that determine whose
     *                                                   budget a request spends, where no route
     *                                                   does. Only their hashes are stored
     * @param ?\Closure(\Throwable): void $onStoreFailure is called when the store fails. Until it
     *                                                   works again, a second later or more, this
     *                                                   Pacer goes by its own view
     * @param ?\Closure(): int           $clock          the local time in Unix nanoseconds; null:
     *                                                   the system's
     */
    public function __construct(
        private readonly ?Store $store = null,
        ?Routes $routes = null,
        int|\Closure|null $threshold = null,
        private readonly array $credentials = ['Authorization', 'X-Api-Key'],
        private readonly ?\Closure $onStoreFailure = null,
        private readonly ?\Closure $clock = null,
    ) {
        if (PHP_INT_SIZE < 8) {
            throw new \LogicException('weirlimit/pacer needs a PHP of 64 bits: times are nanoseconds');
        }
        $this->routes = $routes ?? Routes::contract();
        $this->threshold = match (true) {
            $threshold instanceof \Closure => $threshold,
            $threshold === null => self::threshold(...),
            default => static fn (int $limit): int => max($threshold, 0),
        };
        foreach ([Answer::class, Process::class, Sent::class, Verdict::class, Wait::class] as $class) {
            class_exists($class); // loaded now, and not while a store is locked
        }
        $this->origin = (int) (microtime(true) * 1e6) * 1000 - hrtime(true);
        $this->newProcess();
    }

    /**
     * Writes to the store once more what this process does not hold any more, if it failed when the
     * answer came: the other processes would leave room for that until it is too old.
     */
    public function __destruct()
    {
        if ($this->pid !== getmypid()) {
            return;
        }
        foreach ($this->windows as $window) {
            if ($window->unwritten) {
                $this->away = 0;
                $this->update($window, static fn () => null);
            }
        }
        foreach ($this->slots as $slots) {
            if ($slots->unwritten) {
                $this->away = 0;
                $this->hold($slots, $slots->held);
            }
        }
    }

    /**
     * Has a fatal error, after which PHP runs no destructors, give back what the calls hold: the
     * process may live on, as a worker of PHP-FPM does.
     */
    private function endWithScript(): void
    {
        if (self::$holders === null) {
            self::$holders = new \WeakMap();
            register_shutdown_function(static function (): void {
                if (((error_get_last()['type'] ?? 0) & (E_ERROR | E_CORE_ERROR | E_COMPILE_ERROR | E_USER_ERROR)) !== 0) {
                    foreach (self::$holders as $pacer => $true) {
                        $pacer->endAll();
                    }
                }
            });
        }
        self::$holders[$this] = true;
    }

    private function endAll(): void
    {
        $this->checkProcess();
        foreach ($this->windows as $window) {
            if ($window->settling !== null && $window->flying + $window->open > 0) {
                $window->flying = $window->open = 0;
                $this->update($window, static fn () => null);
            }
        }
        foreach ($this->slots as $slots) {
            $this->hold($slots, 0);
        }
    }

    /** Returns the default threshold: 5, or a tenth of the limit rounded up if that is less. */
    public static function threshold(int $limit): int
    {
        return $limit > 50 ? 5 : intdiv($limit + 9, 10);
    }

    /** Decides whether a call may start now, and if so counts it in flight. */
    public function admit(Call $call): Pass|Wait
    {
        $line = $this->line($call);
        if ($line->slots !== null && !$this->hold($line->slots, $line->slots->held + 1)) {
            $this->report();

            // nobody knows when a call will end
            return new Wait($line->host, $line->limiter, Wait::SLOTS, Clock::SECOND, Clock::SECOND, 0, $this->unix(), $this->trouble);
        }
        [$result, $elsewhere] = $this->try($line);
        if ($elsewhere !== '') {
            $line = $this->line($call);
            [$result] = $this->try($line);
        }
        if (!$result instanceof Pass) {
            $this->release($line);
        }
        $this->report();

        return $result instanceof Pass ? $result : $this->wait($line, $result);
    }

    /**
     * Counts a call in flight without asking whether there is budget for it: one that will be sent
     * when a Wait is over, by something that cannot ask again then. It returns null if as many calls
     * are in flight as the limiter allows.
     */
    public function reserve(Call $call): ?Pass
    {
        $line = $this->line($call);
        if ($line->slots !== null && !$this->hold($line->slots, $line->slots->held + 1)) {
            $this->report();

            return null;
        }
        $starts = [];
        foreach ($line->windows as $window) {
            $starts[] = $this->start($line, $window, $this->ask($line, $window), true)[1];
        }
        $this->report();

        return new Pass($this, $line, $starts, $line->slots !== null);
    }

    /**
     * Handles the response to a call, of which all has been read. After a 429 it returns when the
     * call can be sent again, or null if the response does not show that; then the 429 goes to the
     * caller. After any other status it returns null.
     *
     * @param iterable<string, string|list<string>> $headers in any letter case
     */
    public function answered(Pass $pass, int $status, iterable $headers): ?Wait
    {
        $wait = $this->began($pass, $status, $headers);
        $this->ended($pass);

        return $wait;
    }

    /**
     * Handles the head of the response to a call, and returns what answered does. Until ended, the
     * call counts as one in flight for a limiter with in_flight, and its units can come back.
     *
     * @param iterable<string, string|list<string>> $headers in any letter case
     */
    public function began(Pass $pass, int $status, iterable $headers): ?Wait
    {
        if (!$pass->open) {
            return null;
        }
        $answer = Fields::read($status, $headers);
        if ($pass->line->slots?->refused($pass->line, $answer)) {
            $answer = $answer->as(Answer::UNSENT); // no window was charged
        }
        $until = $this->finish($pass, $answer);
        $wait = null;
        if ($answer->refused && ($until > 0 || $answer->wait > 0)) {
            $for = $until > 0 ? max($answer->wait, $until - $this->now()) : $answer->wait;
            $wait = new Wait($pass->line->host, $pass->line->limiter, Wait::REFUSED, $for, $for, $for, $this->unix());
        }
        $this->report();

        return $wait;
    }

    /** Handles the end of a response that began: all of it has been read, or nobody will read it. */
    public function ended(Pass $pass): void
    {
        if (!$pass->underWay) {
            return;
        }
        $pass->underWay = false;
        $this->checkProcess();
        foreach ($pass->charged as $i => $reset) {
            $window = $pass->line->windows[$i];
            $units = $window->cost($pass->line->cost);
            $window->open = max($window->open - $units, 0);
            $this->update($window, static function (Budget $b, int $now, ?Family $family, ?Settling $settling) use ($reset, $units): void {
                if ($b->phase === Budget::KNOWN && $b->reset === $reset) {
                    $settling->end($b, $units);
                }
            });
        }
        $this->release($pass->line, $pass);
        $this->report();
    }

    /** Handles a call that ended without a response. It may have been charged. */
    public function lost(Pass $pass): void
    {
        $this->finish($pass, new Answer(Answer::LOST));
        $this->report();
    }

    /** Handles a call that never reached the server. */
    public function unsent(Pass $pass): void
    {
        $this->finish($pass, new Answer(Answer::UNSENT));
        $this->report();
    }

    /**
     * Sets how many calls like this one wait in this process. The other processes see it with the
     * next update, and leave this one its part of the first second of a window.
     */
    public function waiting(Call $call, int $calls): void
    {
        foreach ($this->line($call)->windows as $window) {
            $window->wanting = max($calls, 0);
        }
    }

    /**
     * Returns what is known of each window that a call would be charged to. It counts nothing.
     *
     * @return list<Standing>
     */
    public function budgets(Call $call): array
    {
        $line = $this->line($call);
        $all = [];
        foreach ($line->windows as $window) {
            if ($this->store !== null) {
                $this->update($window, static fn () => null);
            }
            $all[] = $this->standing($line, $window);
        }
        $this->report();

        return $all;
    }

    /**
     * Returns what is known of the window that makes a call wait longest, else of the one with the
     * least left; nothing if the limiter has none. It counts nothing.
     */
    public function budget(Call $call): Standing
    {
        $worst = null;
        foreach ($this->budgets($call) as $one) {
            $wait = $one->wait->again ?? 0;
            $before = $worst?->wait->again ?? 0;
            if ($worst === null || $wait > $before
                || $wait === $before && $one->known && (!$worst->known || $one->remaining < $worst->remaining)) {
                $worst = $one;
            }
        }

        $line = $this->line($call);

        return $worst ?? new Standing($line->host, $line->limiter, '', false, 0, 0, 0, 0, 0, null);
    }

    /**
     * Reports whether a call may start before its Wait is over: when the answers of others end, or
     * because of what other processes do.
     */
    public function isChanging(Call $call): bool
    {
        if ($this->store !== null) {
            return true;
        }
        $line = $this->line($call);
        foreach ($line->windows as $window) {
            if ($window->settling !== null) {
                return true;
            }
        }

        return $line->slots !== null;
    }

    /** Reports whether other processes may change what this Pacer knows. */
    public function isShared(): bool
    {
        return $this->store !== null;
    }

    /** Identifies what a call is charged to, for queues of calls that wait for the same. */
    public function queue(Call $call): string
    {
        return $this->line($call)->name();
    }

    private function standing(Line $line, Window $window): Standing
    {
        $now = $this->now();
        $b = clone $window->view;
        $known = $b->phase === Budget::KNOWN && $now < $b->restored($now) && $now >= $b->seen;
        $inFlight = $b->inFlight();
        $verdict = (clone $b)->canStart($this->ask($line, $window), $now, $window->settling?->back($b) ?? 0);
        $wait = null;
        if (!$verdict->start) {
            $for = max($verdict->until - $now, 1);
            $wait = new Wait($line->host, $line->limiter, $verdict->why, $for, $for, $for, $this->unix());
        }

        return new Standing(
            $line->host,
            $line->limiter,
            $window->shown,
            $known,
            $known ? $b->limit : 0,
            $known ? $b->remaining : 0,
            $inFlight,
            $b->length,
            $known ? $b->restored($now) - $now : 0,
            $wait,
        );
    }

    /**
     * Counts a call in all windows of a line, or in none. The second value is not empty if the
     * call's path has a line of its own, which this process did not know.
     *
     * @return array{Pass|Verdict, string}
     */
    private function try(Line $line): array
    {
        if (count($line->windows) > 1) { // checked first, so that a count is rarely taken back
            foreach ($line->windows as $window) {
                $verdict = $this->canStart($window, $this->ask($line, $window));
                if (!$verdict->start) {
                    return [$verdict, ''];
                }
            }
        }
        $starts = [];
        foreach ($line->windows as $window) {
            [$verdict, $started, $elsewhere] = $this->start($line, $window, $this->ask($line, $window), false);
            if ($elsewhere !== '') {
                return [$verdict, $elsewhere];
            }
            if (!$verdict->start) {
                foreach ($starts as $i => $as) {
                    $this->learn($line, $line->windows[$i], $as, new Answer(Answer::UNSENT));
                }

                return [$verdict, ''];
            }
            $starts[] = $started;
        }

        return [new Pass($this, $line, $starts, $line->slots !== null), ''];
    }

    private function ask(Line $line, Window $window): Ask
    {
        return new Ask($window->cost($line->cost), $this->threshold, $this->process, $window->declaredLimit, $window->declaredLength);
    }

    private function canStart(Window $window, Ask $ask): Verdict
    {
        if ($this->store === null) {
            return $window->view->canStart($ask, $this->now(), $window->settling?->back($window->view) ?? 0);
        }
        $verdict = null;
        $this->update($window, static function (Budget $b, int $now, ?Family $family, ?Settling $settling) use ($ask, &$verdict): void {
            $verdict = $b->canStart($ask, $now, $settling?->back($b) ?? 0);
        });

        return $verdict;
    }

    /**
     * Decides whether a call may start, and if so counts it in flight.
     *
     * @return array{Verdict, array{int, int}, string}
     */
    private function start(Line $line, Window $window, Ask $ask, bool $anyway): array
    {
        $before = $window->flying;
        $verdict = $started = null;
        $elsewhere = '';
        $this->update($window, function (Budget $b, int $now, ?Family $family, ?Settling $settling) use ($line, $window, $ask, $anyway, $before, &$verdict, &$started, &$elsewhere): void {
            $window->flying = $before;
            $elsewhere = '';
            if ($family !== null && !$anyway && $family->line($line->place) !== Family::MAIN) {
                $elsewhere = $family->line($line->place);
                $verdict = Verdict::wait($now, Wait::PROBING);
                $started = [0, $now];

                return;
            }
            $verdict = $anyway ? Verdict::start() : $b->canStart($ask, $now, $settling?->back($b) ?? 0);
            $started = [0, $now];
            if ($verdict->start) {
                $window->flying = $before + $ask->cost;
                $settling?->set($this->process, $window->flying, $window->open, $now);
                $b->setFlight($this->process, $window->flying, $window->wanting, $now, $settling);
                $started = [$b->begin($ask, $now), $now];
            }
        });

        return [$verdict, $started, $elsewhere];
    }

    /** Handles the end of a call. It returns what Budget::learn does. */
    private function finish(Pass $pass, Answer $a): int
    {
        if (!$pass->open) {
            return 0;
        }
        $pass->open = false;
        $this->checkProcess();
        $line = $pass->line;
        if ($line->place !== '' && $a->kind === Answer::BINDING) {
            return $this->finishUncovered($pass, $a);
        }
        $began = !$a->refused && !in_array($a->kind, [Answer::UNSENT, Answer::LOST], true);
        $bound = $this->bound($line, $a);
        $until = 0;
        foreach ($line->windows as $i => $window) {
            $one = $a->kind === Answer::BINDING && $i !== $bound ? $a->as(Answer::NONBOUND) : $a;
            $open = $window->open;
            $also = !$began || $window->settling === null || !$window->later ? null : function (Budget $b, int $now, ?Family $family, Settling $settling) use ($pass, $i, $line, $window, $open): void {
                unset($pass->charged[$i]);
                $window->open = $open;
                if ($b->phase === Budget::KNOWN) {
                    $pass->charged[$i] = $b->reset;
                    $window->open = $open + $window->cost($line->cost);
                    $settling->set($this->process, $window->flying, $window->open, $now);
                }
            };
            $until = max($until, $this->learn($line, $window, $pass->starts[$i], $one, $also));
        }
        $pass->underWay = $began && ($pass->charged !== [] || $pass->holds);
        if (!$began) {
            $this->release($line, $pass);
        }

        return $until;
    }

    /** Gives back the slot that a call holds, if it holds one. */
    private function release(Line $line, ?Pass $pass = null): void
    {
        if ($line->slots !== null && ($pass === null || $pass->holds)) {
            $this->hold($line->slots, max($line->slots->held - 1, 0));
        }
        if ($pass !== null) {
            $pass->holds = false;
        }
    }

    /**
     * Sets how many slots this process holds. False: that many are not free, or the store does not
     * say so. What is given back is free in any case.
     */
    private function hold(Slots $slots, int $wanted): bool
    {
        $before = $slots->held;
        if ($this->store === null) {
            $slots->held = max(min($wanted, $slots->limit), 0);

            return $slots->held === $wanted;
        }
        $slots->held = min($wanted, $before);
        if ($this->isAway()) {
            $slots->unwritten = $slots->unwritten || $wanted < $before;

            return $wanted <= $before;
        }
        try {
            $held = 0;
            $this->store->update($slots->key, function (?string $state) use ($slots, $wanted, &$held): string {
                return $slots->next($state, $this->process, $wanted, $this->now(), $held);
            });
            $slots->held = $held;
            $slots->unwritten = false;
            $this->trouble = '';

            return $held === $wanted;
        } catch (\Exception $e) {
            $this->failure = $e;
            $this->trouble = $e->getMessage();
            $this->away = $this->now() + Clock::SECOND;
            $slots->unwritten = true;

            return $wanted <= $before;
        }
    }

    /**
     * Handles one window's part of an answer.
     *
     * @param array{int, int}                              $started
     * @param ?\Closure(Budget, int, ?Family, ?Settling): void $also    is done in the same step
     */
    private function learn(Line $line, Window $window, array $started, Answer $a, ?\Closure $also = null): int
    {
        $cost = $window->cost($line->cost);
        $window->flying = max($window->flying - $cost, 0);
        $until = 0;
        $this->update($window, static function (Budget $b, int $now, ?Family $family, ?Settling $settling) use ($cost, $window, $started, $a, $also, &$until): void {
            $sent = new Sent($cost, $started[0], $started[1], $now, $window->declaredLength);
            $was = $settling === null || $a->kind !== Answer::BINDING ? null : clone $b;
            $until = $b->learn($sent, $a);
            if ($was !== null) {
                $settling->observe($sent, $was, $b, $a->refused);
            }
            if ($also !== null) {
                $also($b, $now, $family, $settling);
            }
        });

        return $until;
    }

    /** Handles an answer with fields to a call that no route covers: whose budget is it? */
    private function finishUncovered(Pass $pass, Answer $a): int
    {
        $line = $pass->line;
        [$window, $main, $at] = [$line->windows[0], $line->main, $line->at];
        $family = $main->family;
        $name = Family::name($a->fields->name);
        $to = $family->settled($line->place, $name);
        if ($to === null) {
            $to = $this->match($line, $family, $at, $a->fields, $name)
                ?? ($family->isFull() ? $at : $line->place);
        }
        $assign = static fn (Budget $b, int $now, ?Family $f) => $f->assign($line->place, $to, $name);
        $news = $family->settled($line->place, $name) !== $to || $name !== Family::MAIN && !$family->isNamed($to, $name);
        $also = $news ? $assign : null;
        if ($to === $at && $window === $main) {
            return $this->learn($line, $window, $pass->starts[0], $a, $also);
        }
        if ($also !== null) {
            $this->update($main, $also);
        }
        if ($to === $at) {
            return $this->learn($line, $window, $pass->starts[0], $a);
        }
        $this->learn($line, $window, $pass->starts[0], new Answer(Answer::UNSENT)); // another was charged
        $until = 0;
        $at = $pass->starts[0][1];
        $this->update($this->uncovered($line->parts, $to), static function (Budget $b, int $now) use ($line, $at, $a, &$until): void {
            $until = $b->learn(new Sent($line->cost, ++$b->started, $at, $now), $a);
        });

        return $until;
    }

    /** Returns a budget of the family that a response can describe, preferably $at, or null. */
    private function match(Line $line, Family $family, string $at, Report $reported, string $name): ?string
    {
        $found = null;
        foreach ($family->lines() as $one) {
            if (!$family->canBe($one, $name)) {
                continue;
            }
            $window = $this->uncovered($line->parts, $one);
            if ($one !== $at && $this->store !== null) {
                $this->update($window, static fn () => null);
            }
            if ($window->view->describes($reported, $this->now())) {
                if ($one === $at) {
                    return $at;
                }
                $found ??= $one;
            }
        }

        return $found;
    }

    /**
     * Returns the index of the window that the fields describe: one with their limit, else the
     * shortest that is long enough for their Reset.
     */
    private function bound(Line $line, Answer $a): int
    {
        if (count($line->windows) < 2 || $a->kind !== Answer::BINDING) {
            return 0;
        }
        $f = $a->fields;
        if ($f->after > 0) {
            $ahead = intdiv($f->after + Clock::SECOND - 1, Clock::SECOND);
        } elseif ($f->date > 0) {
            $ahead = $f->reset - $f->date;
        } else {
            $ahead = $f->reset - intdiv($this->now(), Clock::SECOND);
        }
        $best = 0;
        $bestScore = -3;
        foreach ($line->windows as $i => $window) {
            $length = $window->declaredLength;
            $fits = $ahead <= $length;
            $score = $fits ? 1 : 0;
            $was = $window->view->limit;
            if ($was === min($f->limit, Budget::MOST) || $window->declaredLimit === $f->limit) {
                $score += 2;
            } elseif ($was !== 0) {
                $score -= 2; // it has stated another limit
            }
            // the shortest that fits, or the longest
            $nearer = $fits === ($length < $line->windows[$best]->declaredLength);
            if ($score > $bestScore || $score === $bestScore && $nearer) {
                $best = $i;
                $bestScore = $score;
            }
        }

        return $best;
    }

    /** Returns what a call has to wait for. */
    private function wait(Line $line, Verdict $v): Wait
    {
        $now = $this->now();
        $views = $least = [];
        foreach ($line->windows as $window) {
            $ask = $this->ask($line, $window);
            $views[] = [$window->view, $ask];
            $least[] = [$window->view->optimistic($window->settling?->most($window->view) ?? 0), $ask];
        }
        $expected = max($v->until, self::when($views, $now));

        return new Wait(
            $line->host,
            $line->limiter,
            $v->why,
            max($v->until - $now, 1),
            max($expected - $now, 1),
            max(self::when($least, $now) - $now, 0),
            $this->unix(),
        );
    }

    /**
     * Returns the earliest local time at which a call could start in all windows.
     *
     * @param list<array{Budget, Ask}> $views
     */
    private static function when(array $views, int $now): int
    {
        $enough = static function (int $then) use ($views, $now): bool {
            foreach ($views as [$budget, $ask]) {
                if ($budget->capacity($ask, $now, $then) < 1) {
                    return false;
                }
            }

            return true;
        };
        if ($enough($now)) {
            return $now;
        }
        $low = $now;
        $high = $now + self::MAX_ESTIMATE;
        while ($high - $low > 1) {
            $middle = $low + intdiv($high - $low, 2);
            if ($enough($middle)) {
                $high = $middle;
            } else {
                $low = $middle;
            }
        }

        return $high;
    }

    /**
     * Changes a window's budget, in the store if there is one. $change may be called more than
     * once.
     *
     * @param callable(Budget, int, ?Family, ?Settling): mixed $change
     */
    private function update(Window $window, callable $change): void
    {
        if ($this->store !== null && !$this->isAway()) {
            try {
                $next = $family = $settling = null;
                $this->store->update($window->key, function (?string $state) use ($window, $change, &$next, &$family, &$settling): string {
                    $now = $this->now();
                    $b = $state === null ? null : Budget::decode($state, $rest);
                    if ($b === null || !$b->plausible($now)) {
                        $b = new Budget();
                        $b->phase = $window->isDeclared() ? Budget::UNKNOWN : Budget::SILENT;
                        $rest = '';
                    }
                    $settling = $window->settling === null ? null : Settling::decode($rest ?? '');
                    $family = $window->family === null ? null : Family::decode($rest ?? '');
                    $settling?->set($this->process, $window->flying, $window->open, $now);
                    $b->setFlight($this->process, $window->flying, $window->wanting, $now, $settling);
                    $change($b, $now, $family, $settling);
                    $next = $b;

                    return $b->encode().($family ?? $settling)?->encode();
                });
                $window->view = $next;
                $window->family = $family;
                $window->settling = $settling;
                $window->unwritten = false;

                return;
            } catch (\Exception $e) {
                $this->failure = $e;
                $this->trouble = $e->getMessage();
                $this->away = $this->now() + Clock::SECOND;
                $window->unwritten = true;
            }
        }
        $now = $this->now();
        $window->settling?->set($this->process, $window->flying, $window->open, $now);
        $window->view->setFlight($this->process, $window->flying, 0, $now, $window->settling);
        $change($window->view, $now, $window->family, $window->settling);
    }

    /**
     * Reports whether the store has failed less than a second ago. If it seems to be longer, the
     * clock was set back.
     */
    private function isAway(): bool
    {
        $left = $this->away - $this->now();

        return $left > 0 && $left <= Clock::SECOND;
    }

    /** Calls onStoreFailure, outside of any step of the store. */
    private function report(): void
    {
        $failure = $this->failure;
        $this->failure = null;
        if ($failure !== null && $this->onStoreFailure !== null) {
            ($this->onStoreFailure)($failure);
        }
    }

    /** Returns the line of a call. */
    private function line(Call $call): Line
    {
        $this->checkProcess();
        $found = $this->routes->find($call->method, $call->path, $call->header('host')[0] ?? $call->host);
        if ($found === null) {
            return $this->uncoveredLine($call);
        }
        [$limiter, $parameters] = $found;
        $windows = [];
        foreach ($limiter->windows as $declared) {
            $windows[] = $this->covered($call, $limiter, $declared, $parameters);
        }
        $slots = $limiter->inFlight === null ? null : $this->slots($call, $limiter, $parameters);
        if ($slots !== null || in_array(true, array_column($limiter->windows, 'settles'), true)) {
            $this->endWithScript();
        }

        return new Line($call->host, $limiter->name, $limiter->cost, $windows, slots: $slots);
    }

    /** @param array<string, string> $parameters */
    private function slots(Call $call, Limiter $limiter, array $parameters): Slots
    {
        $declared = $limiter->inFlight;
        $parts = [$call->scheme, $call->host, $limiter->name, 'in flight', $declared['by']];
        foreach ($declared['key'] as $part) {
            [$source, $value] = self::first($call, $part, $parameters);
            array_push($parts, $source, $source === 'ip' ? $value : Source::subject($source, $value)[0]);
        }
        $key = self::name($parts);
        if (count($this->slots) >= self::MAX_WINDOWS) {
            $this->slots = array_filter($this->slots, static fn (Slots $s): bool => $s->held > 0 || $s->unwritten);
        }

        return $this->slots[$key] ??= new Slots($key, $declared['limit']);
    }

    /**
     * @param array{limit: int, seconds: int, span: string, by: string, key: list<list<string>>,
     *     requests: bool, settles: bool, later: bool} $declared
     * @param array<string, string> $parameters
     */
    private function covered(Call $call, Limiter $limiter, array $declared, array $parameters): Window
    {
        $parts = [$call->scheme, $call->host, $limiter->name, $declared['by'], $declared['span']];
        if ($declared['requests']) {
            $parts[] = 'requests';
        }
        $people = [];
        foreach ($declared['key'] as $part) {
            [$source, $value] = self::first($call, $part, $parameters);
            $text = $source;
            if ($source !== 'ip') {
                [$value, $text] = Source::subject($source, $value);
            }
            array_push($parts, $source, $value);
            $people[] = $text;
        }
        $key = self::name($parts);

        if (isset($this->windows[$key])) {
            return $this->windows[$key];
        }
        $window = new Window($key, implode(' + ', $people), $declared['limit'], $declared['seconds'], $declared['requests'], $declared['later']);
        $window->settling = $declared['settles'] ? new Settling() : null;

        return $this->keep($window);
    }

    /**
     * Returns the first source of a part that a call has, and its value.
     *
     * @param list<string>          $part
     * @param array<string, string> $parameters
     *
     * @return array{string, string}
     */
    private static function first(Call $call, array $part, array $parameters): array
    {
        foreach ($part as $source) {
            if ($source === 'ip') {
                break;
            }
            $value = str_starts_with($source, 'path:') ? $parameters[substr($source, 5)] ?? null : Source::value($call, $source);
            if ($value !== null && $value !== '') {
                return [$source, $value];
            }
        }

        return ['ip', ''];
    }

    private function uncoveredLine(Call $call): Line
    {
        $parts = [$call->scheme, $call->host];
        $people = [];
        foreach ($this->credentials as $field) {
            foreach ($call->header($field) as $value) {
                array_push($parts, strtolower($field), hash('sha256', $value, true));
                $people[] = strtolower($field).' '.Source::hashed($value);
            }
        }
        $parts[] = implode(' + ', $people);
        $main = $this->uncovered($parts, Family::MAIN);
        $place = Family::place($call);
        $at = $main->family->line($place);
        $window = $at === Family::MAIN ? $main : $this->uncovered($parts, $at);

        return new Line($call->host, '', 1, [$window], $parts, $place, $at, $main);
    }

    /**
     * Returns the window of the paths of a family that have not been answered, or of one place.
     *
     * @param list<string> $parts
     */
    private function uncovered(array $parts, string $place): Window
    {
        $shown = array_pop($parts);
        $key = self::name([...$parts, '', $place]);
        if (isset($this->windows[$key])) {
            return $this->windows[$key];
        }
        $window = new Window($key, $shown);
        $window->view->phase = Budget::SILENT;
        if ($place === Family::MAIN) {
            $window->family = new Family();
        }

        return $this->keep($window);
    }

    /** Keeps a window. If there are very many, those that can be forgotten without a loss are. */
    private function keep(Window $window): Window
    {
        if (count($this->windows) >= $this->sweepAt) {
            $now = $this->now();
            $this->windows = array_filter(
                $this->windows,
                static fn (Window $w): bool => $w->flying > 0 || $w->open > 0 || $w->wanting > 0 || !$w->view->idle($now),
            );
            // so that many that cannot be forgotten are not looked at with each call
            $this->sweepAt = max(self::MAX_WINDOWS, 2 * count($this->windows));
        }

        return $this->windows[$window->key] = $window;
    }

    /**
     * Returns a hash of a list of parts, as 64 hexadecimal digits. It reveals no credential.
     *
     * @param list<string> $parts
     */
    private static function name(array $parts): string
    {
        $text = '';
        foreach ($parts as $part) {
            $text .= strlen($part).':'.$part;
        }

        return hash('sha256', $text);
    }

    /** Begins anew after a fork: the calls in flight are the parent's. */
    private function checkProcess(): void
    {
        if ($this->pid !== getmypid()) {
            $this->newProcess();
            foreach ($this->windows as $window) {
                $window->flying = $window->open = $window->wanting = 0;
            }
            foreach ($this->slots as $slots) {
                $slots->held = 0;
            }
        }
    }

    private function newProcess(): void
    {
        $this->process = random_int(1, PHP_INT_MAX);
        $this->pid = getmypid();
    }

    /**
     * Returns the local time in nanoseconds: alone a time that is never set back, with a store the
     * time that all processes have.
     */
    private function now(): int
    {
        if ($this->clock !== null) {
            return ($this->clock)();
        }
        if ($this->store instanceof StoreWithClock) {
            return $this->store->time();
        }

        return $this->store === null ? $this->origin + hrtime(true) : (int) (microtime(true) * 1e6) * 1000;
    }

    /** Returns the time of this machine's clock in Unix seconds. */
    private function unix(): float
    {
        return $this->clock === null ? microtime(true) : ($this->clock)() / 1e9;
    }
}
