<?php

declare(strict_types=1);

namespace Weir\Pacer;

/**
 * What a call asks of a budget: its units, and the units that must be left for a limit.
 *
 * @internal
 */
final class Ask
{
    /**
     * @param \Closure(int): int $threshold
     * @param int                $process        the id of the process that asks
     * @param int                $declaredLimit  limit that the routes give the window; 0: none
     * @param int                $declaredLength seconds; likewise
     */
    public function __construct(
        public readonly int $cost,
        public readonly \Closure $threshold,
        public readonly int $process,
        public readonly int $declaredLimit = 0,
        public readonly int $declaredLength = 0,
    ) {
    }

    /** Returns how many units must be left when the call starts: the threshold, or its own. */
    public function mustLeave(int $limit): int
    {
        return max(($this->threshold)($limit), $this->cost);
    }
}
