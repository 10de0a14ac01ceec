<?php

declare(strict_types=1);

namespace Weir\Pacer;

/** Sleeps, and measures it. Tests replace it by a time that passes only when somebody sleeps. */
class Time
{
    /** Returns nanoseconds that are never set back. */
    public function now(): int
    {
        return hrtime(true);
    }

    public function sleep(int $nanos): void
    {
        usleep(intdiv(max($nanos, 0) + 999, 1000));
    }
}
