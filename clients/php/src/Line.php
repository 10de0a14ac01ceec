<?php

declare(strict_types=1);

namespace Weir\Pacer;

/**
 * What a call is charged to: the windows of one limiter, host and credential.
 *
 * @internal
 */
final class Line
{
    /** @param list<Window> $windows */
    public function __construct(
        public readonly string $host,
        public readonly string $limiter,
        public readonly int $cost,
        public readonly array $windows,
        /** The parts of the key of a line that no route covers; empty if one does. */
        public readonly array $parts = [],
        /** The place of the request in its family. */
        public readonly string $place = '',
        /** The place that the window is of: the family's first budget is MAIN's. */
        public readonly string $at = '',
        /** The window of the family's first budget. */
        public readonly ?Window $main = null,
        /** null: any number of calls may be in flight. */
        public readonly ?Slots $slots = null,
    ) {
    }

    /** Identifies the line among those of this process. */
    public function name(): string
    {
        return ($this->slots->key ?? '').implode('', array_map(static fn (Window $w): string => $w->key, $this->windows));
    }
}
