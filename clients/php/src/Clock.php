<?php

declare(strict_types=1);

namespace Weir\Pacer;

/**
 * Bounds how far the server's clock is ahead of the local one, in nanoseconds. Local times are
 * nanoseconds from any origin.
 *
 * A Date is the second in which the server decided, which was after the request was sent and before
 * the response arrived. So each response bounds the offset from both sides, and many responses
 * bound it more closely than one.
 *
 * @internal
 */
final class Clock
{
    public const SECOND = 1_000_000_000;

    /** How much two clocks may diverge, per nanosecond: the rate at which a system adjusts one. */
    private const DRIFT = 500e-6;

    public int $low = 0;
    public int $high = 0;
    /** Local time of the bounds. */
    public int $at = 0;
    public bool $set = false;

    /**
     * Handles a Date, in Unix seconds. It reports whether the Date contradicts the bounds: a clock
     * was set since, or another server answers. Then only this Date counts.
     */
    public function saw(int $date, int $sent, int $received): bool
    {
        $low = self::nanos($date) - $received;
        $high = self::nanos($date) + self::SECOND - $sent;
        $parted = $this->parted($received);
        $contradicts = $this->set && ($this->low - $parted > $high || $low > $this->high + $parted);
        if ($this->set && !$contradicts) {
            $low = max($low, $this->low - $parted);
            $high = min($high, $this->high + $parted);
        }
        $this->low = $low;
        $this->high = $high;
        $this->at = $received;
        $this->set = true;

        return $contradicts;
    }

    /** Returns the latest local time at which the server's clock reaches a Unix second. */
    public function reaches(int $unix, int $now): int
    {
        return self::nanos($unix) - $this->low + $this->parted($now);
    }

    /** Returns the earliest second that the server's clock can show. */
    public function now(int $now): int
    {
        return intdiv($now + $this->low - $this->parted($now), self::SECOND);
    }

    /** Returns a Unix second in nanoseconds, clamped so that sums with it stay integers. */
    public static function nanos(int $unix): int
    {
        return min(max($unix, 0), intdiv(PHP_INT_MAX, 2 * self::SECOND)) * self::SECOND;
    }

    private function parted(int $now): int
    {
        return $this->set ? (int) (max($now - $this->at, 0) * self::DRIFT) : 0;
    }
}
