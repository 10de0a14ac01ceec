<?php

declare(strict_types=1);

namespace Weir\Pacer;

/** A call cannot start now. It says why, and when to come back. */
final class Wait
{
    /** Only the threshold is left of the window, until its Reset. */
    public const SPENT = 'spent';
    /** A 429 asked to wait. */
    public const REFUSED = 'refused';
    /** The first call of a window is in flight; its response will show what is left. */
    public const PROBING = 'probing';
    /** As many calls are in flight as the limiter allows, and one has to end first. */
    public const SLOTS = 'slots';

    /** When the call can be expected to start, on this machine's clock. */
    public readonly \DateTimeImmutable $until;

    /**
     * @param string $limiter empty if no route covers the request
     * @param string $reason  one of the constants
     * @param int    $again   nanoseconds until it is worth asking again
     * @param int    $for     nanoseconds until the call can be expected to start
     * @param int    $least   nanoseconds that it certainly has to wait
     * @param string $failure why the store does not say how many calls are in flight; empty: it does
     */
    public function __construct(
        public readonly string $host,
        public readonly string $limiter,
        public readonly string $reason,
        public readonly int $again,
        public readonly int $for,
        public readonly int $least,
        float $now,
        public readonly string $failure = '',
    ) {
        $micros = (int) ceil($now * 1e6) + intdiv($for + 999, 1000);
        $this->until = (new \DateTimeImmutable('@'.intdiv($micros, 1_000_000)))
            ->modify('+'.($micros % 1_000_000).' usec');
    }

    /** Returns the seconds until the call can be expected to start. */
    public function seconds(): float
    {
        return $this->for / 1e9;
    }

    /** Returns the same in whole seconds and at least 1, as a Retry-After has it. */
    public function retryAfter(): int
    {
        return max(intdiv($this->for + Clock::SECOND - 1, Clock::SECOND), 1);
    }

    /** Returns a sentence for a log: what waits, why, and when to come back. */
    public function message(): string
    {
        $of = $this->limiter === '' ? "requests to $this->host" : "limiter $this->limiter of $this->host";
        $why = [
            self::SPENT => 'budget spent',
            self::REFUSED => 'refused',
            self::PROBING => 'asking for the budget',
            self::SLOTS => 'too many calls in flight',
        ][$this->reason];
        if ($this->failure !== '') {
            $why = "it is not known how many calls are in flight, because the store fails ($this->failure)";
        }

        return sprintf('%s: %s; come back in %.3f s, at %s', $of, $why, $this->seconds(), $this->until->format('Y-m-d\TH:i:s.v\Z'));
    }
}
