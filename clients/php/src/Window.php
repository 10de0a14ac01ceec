<?php

declare(strict_types=1);

namespace Weir\Pacer;

/**
 * One window of one caller in this process.
 *
 * @internal
 */
final class Window
{
    /** With a store, as last read. */
    public Budget $view;
    /** Units in flight of this process. */
    public int $flying = 0;
    /** Units of the calls of this process whose answers have begun and not ended. */
    public int $open = 0;
    /** Waiting calls of this process. */
    public int $wanting = 0;
    /** Whether the store may say that more is in flight, because it failed when an answer came. */
    public bool $unwritten = false;
    /** Which paths have another budget; null if a route covers the window, or for such a path. */
    public ?Family $family = null;
    /** What comes back after the answers; null if nothing does. */
    public ?Settling $settling = null;

    public function __construct(
        /** Identifies it, with the credential as a hash. */
        public readonly string $key,
        /** What it is counted by, in a form for people. */
        public readonly string $shown,
        public readonly int $declaredLimit = 0,
        public readonly int $declaredLength = 0,
        /** Whether each call costs 1, whatever its limiter's cost is. */
        private readonly bool $requests = false,
        /** Whether units come back when an answer has ended. Else its fields include what it costs. */
        public readonly bool $later = false,
    ) {
        $this->view = new Budget();
    }

    /** Returns what a call of a limiter with this cost spends. */
    public function cost(int $cost): int
    {
        return $this->requests ? 1 : $cost;
    }

    public function isDeclared(): bool
    {
        return $this->declaredLimit > 0;
    }
}
