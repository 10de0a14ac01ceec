<?php

declare(strict_types=1);

namespace Weir\Pacer;

/**
 * Whether a call may start.
 *
 * @internal
 */
final class Verdict
{
    private function __construct(
        public readonly bool $start,
        /** Local time at which to ask again. */
        public readonly int $until,
        public readonly string $why,
    ) {
    }

    public static function start(): self
    {
        return new self(true, 0, '');
    }

    public static function wait(int $until, string $why): self
    {
        return new self(false, $until, $why);
    }
}
