<?php

declare(strict_types=1);

namespace Weir\Pacer;

/** What is known of one window. */
final class Standing
{
    public function __construct(
        public readonly string $host,
        /** Empty if no route covers the request. */
        public readonly string $limiter,
        /** What it is counted by, as "token 4f2k7q9x"; secrets are shown as a short hash. */
        public readonly string $key,
        /** Whether limit, remaining and resets are known, and the Reset has not passed. */
        public readonly bool $known,
        public readonly int $limit,
        /** Units left, according to the last response. */
        public readonly int $remaining,
        /** Units of requests without an answer so far, of all processes. */
        public readonly int $inFlight,
        /** Length of the window in seconds, as far as was seen; 0: not known. */
        public readonly int $length,
        /** Nanoseconds until the budget is certainly restored; 0 if that is not known. */
        public readonly int $restored,
        /** Why a call cannot start now; null: it can. */
        public readonly ?Wait $wait,
    ) {
    }
}
