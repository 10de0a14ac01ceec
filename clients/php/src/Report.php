<?php

declare(strict_types=1);

namespace Weir\Pacer;

/**
 * What a response states about a budget. If reset is 0, after is set instead.
 *
 * @internal
 */
final class Report
{
    public int $limit = 0;
    public int $remaining = 0;
    /** Unix seconds at which the budget is restored. */
    public int $reset = 0;
    /** Seconds that a 429 asks to wait; 0: absent. */
    public int $retryAfter = 0;
    /** Unix seconds at which the response was made; 0: absent. */
    public int $date = 0;
    /** Of the budget, if the server sends one. */
    public string $name = '';
    /** Nanoseconds until the budget is restored; 0: see reset. */
    public int $after = 0;
}
