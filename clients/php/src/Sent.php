<?php

declare(strict_types=1);

namespace Weir\Pacer;

/**
 * What a budget needs to know of a request that has returned.
 *
 * @internal
 */
final class Sent
{
    public function __construct(
        public readonly int $cost,
        /** What Budget::begin returned. */
        public readonly int $place,
        /** Local time of the start. */
        public readonly int $at,
        /** Local time of the response. */
        public readonly int $now,
        /** Seconds; the declared length of the window, or 0. */
        public readonly int $length = 0,
    ) {
    }

    /**
     * Reports whether the reported budget had room for the request. If the request was refused all
     * the same, another limit did it, such as GitHub's secondary one.
     */
    public function fitted(Report $f): bool
    {
        return $f->remaining >= $this->cost;
    }
}
