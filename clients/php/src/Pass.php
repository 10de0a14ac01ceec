<?php

declare(strict_types=1);

namespace Weir\Pacer;

/**
 * What a call holds that may start. Its end is reported to the Pacer once: answered, lost or
 * unsent. A Pass that is forgotten counts as lost.
 */
final class Pass
{
    /** @internal */
    public bool $open = true;
    /** A fork has a copy, which it forgets when it ends. */
    private readonly int $pid;

    /**
     * @internal
     *
     * @param list<array{int, int}> $starts the position and the local time of the start, by window
     */
    public function __construct(
        private readonly Pacer $pacer,
        public readonly Line $line,
        public readonly array $starts,
    ) {
        $this->pid = getmypid();
    }

    /** Returns the name of the limiter, empty if no route covers the request. */
    public function limiter(): string
    {
        return $this->line->limiter;
    }

    public function __destruct()
    {
        if ($this->open && $this->pid === getmypid()) {
            $this->pacer->lost($this);
        }
    }
}
