<?php

declare(strict_types=1);

namespace Weir\Pacer;

/**
 * What a call holds that may start. Its end is reported to the Pacer once: answered, lost or
 * unsent; or began, when the head of its answer has come, and then ended. A Pass that is forgotten
 * counts as lost, or as ended if it began.
 */
final class Pass
{
    /** @internal */
    public bool $open = true;
    /** @internal whether the answer has begun, and its end changes what others may do */
    public bool $underWay = false;
    /**
     * @internal the Reset of each window that the answer may give units back to, by its index
     *
     * @var array<int, int>
     */
    public array $charged = [];
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
        /** Whether the call holds a slot of its line. */
        public bool $holds = false,
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
        if ($this->pid !== getmypid()) {
            return;
        }
        $this->open ? $this->pacer->lost($this) : $this->pacer->ended($this);
    }
}
