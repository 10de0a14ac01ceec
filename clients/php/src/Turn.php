<?php

declare(strict_types=1);

namespace Weir\Pacer;

/**
 * Waits for one call, over all its attempts: for programs that may sleep. All its sleeps together
 * are never longer than its caller allows; with 0 it never sleeps.
 */
final class Turn
{
    /** Pauses between two looks at a view that other processes change, in nanoseconds. */
    private const FIRST_PAUSE = 10_000_000;
    private const LAST_PAUSE = 200_000_000;

    /** Nanoseconds that it may still sleep. */
    private int $left;
    private readonly int $jitter;
    private string $notified = '';

    /**
     * @param float                 $maxWait seconds that all waits of the call may take together
     * @param ?\Closure(Wait): void $onWait  is called before the call begins to wait, and again if
     *                                       it then waits for another reason
     * @param float                 $jitter  seconds that are added to a wait for a budget at most
     */
    public function __construct(
        private readonly Pacer $pacer,
        private readonly Call $call,
        private readonly float $maxWait,
        private readonly ?\Closure $onWait = null,
        float $jitter = 0.1,
        private readonly Time $time = new Time(),
    ) {
        $this->left = self::nanos($maxWait);
        $this->jitter = random_int(0, self::nanos($jitter));
    }

    /** Returns seconds in nanoseconds, from 0 to a century. */
    public static function nanos(float $seconds): int
    {
        return (int) (min(max($seconds, 0.0), 3.2e9) * 1e9);
    }

    /**
     * Waits until the call may start.
     *
     * @throws WaitException if that is not allowed, or has taken longer than allowed
     */
    public function enter(): Pass
    {
        $waiting = false;
        try {
            for ($over = 0, $pause = self::FIRST_PAUSE, $why = ''; ;) {
                $now = $this->time->now();
                // one delay after each Reset
                $delay = $over + $this->jitter - $now;
                if ($over !== 0 && $over <= $now && $delay > 0 && $delay < $this->left) {
                    $this->sleep($delay);
                    continue;
                }
                $result = $this->pacer->admit($this->call);
                if ($result instanceof Pass) {
                    return $result;
                }
                if ($this->left <= 0 || $result->least > $this->left) {
                    throw new WaitException($result, $this->maxWait);
                }
                if (!$waiting) { // the other processes see it with the next look
                    $waiting = true;
                    $this->pacer->waiting($this->call, 1);
                }
                $this->notify($result);
                $sleep = min($result->again, $this->left);
                if ($result->reason === Wait::SPENT) {
                    $over = $now + $result->again;
                }
                if ($this->pacer->isShared()) { // other processes change it without a wake-up
                    $pause = $why === $result->reason ? min(2 * $pause, self::LAST_PAUSE) : self::FIRST_PAUSE;
                    $why = $result->reason;
                    $sleep = min($sleep, $pause);
                }
                $this->sleep($sleep);
            }
        } finally {
            if ($waiting) {
                $this->pacer->waiting($this->call, 0);
            }
        }
    }

    /**
     * Waits before a call is sent again after a 429.
     *
     * @throws WaitException if that is not allowed
     */
    public function again(Wait $wait): void
    {
        if ($wait->again > $this->left || $this->left <= 0) {
            throw new WaitException($wait, $this->maxWait);
        }
        $this->notify($wait);
        $this->sleep(min($wait->again + $this->jitter, $this->left));
    }

    private function notify(Wait $wait): void
    {
        if ($this->onWait !== null && $this->notified !== $wait->reason) {
            $this->notified = $wait->reason;
            ($this->onWait)($wait);
        }
    }

    private function sleep(int $nanos): void
    {
        $before = $this->time->now();
        $this->time->sleep($nanos);
        $this->left -= $this->time->now() - $before;
    }
}
