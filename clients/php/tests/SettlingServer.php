<?php

declare(strict_types=1);

namespace Weir\Pacer\Tests;

use Weir\Pacer\Call;
use Weir\Pacer\MemoryStore;
use Weir\Pacer\Pacer;
use Weir\Pacer\Pass;
use Weir\Pacer\Routes;

/**
 * A server that reserves, and settles when the body of its answer has been sent; and the processes
 * that call it, in a time that passes from event to event.
 */
final class SettlingServer
{
    /** Unix nanoseconds. */
    public int $now = 1_800_000_000_000_000_000;
    public int $served = 0;
    public int $refused = 0;
    public int $inFlight = 0;
    /** The most of inFlight. */
    public int $most = 0;
    /** Seconds until the last answer. */
    public float $took = 0;
    private int $left = 0;
    private int $reset = 0;
    private int $sequence = 0;
    private \SplPriorityQueue $events;

    /**
     * @param \Closure(int): int $costs what a call has cost
     * @param \Closure(): float  $lasts seconds from the head of an answer to its end
     */
    public function __construct(
        private readonly int $limit,
        private readonly int $seconds,
        private readonly int $reserve,
        private readonly \Closure $costs,
        private readonly \Closure $lasts,
        private readonly int $slots = PHP_INT_MAX,
        /** Whether it settles before it sends the head of an answer. */
        private readonly bool $inHead = false,
    ) {
        $this->events = new \SplPriorityQueue();
    }

    /**
     * Makes so many calls by processes that share a store. Each makes one at a time, and sees the
     * head of an answer before its end or with it.
     */
    public function call(int $calls, int $processes, Routes $routes, bool $headFirst): void
    {
        $most = 300 * $calls;
        $began = $this->now;
        $store = new MemoryStore();
        $jobs = $calls;
        for ($i = 0; $i < $processes; $i++) {
            $pacer = new Pacer($store, $routes, clock: fn (): int => $this->now);
            $this->at(0, function () use ($pacer, &$jobs, $headFirst): void {
                $this->work($pacer, $jobs, $headFirst);
            });
        }
        while (!$this->events->isEmpty()) {
            if ($most-- === 0) {
                throw new \LogicException("after $this->served calls, $this->refused of them refused, they wait for ever");
            }
            [$at, $event] = $this->events->extract();
            $this->now = $at;
            $event();
        }
        $this->took = ($this->now - $began) / 1e9;
    }

    private function at(float $seconds, \Closure $event): void
    {
        $at = $this->now + (int) ($seconds * 1e9);
        $this->events->insert([$at, $event], [-$at, -$this->sequence++]);
    }

    private function work(Pacer $pacer, int &$jobs, bool $headFirst): void
    {
        if ($jobs > 0) {
            $jobs--;
            $this->ask($pacer, $jobs, $headFirst, 0.01);
        }
    }

    private function ask(Pacer $pacer, int &$jobs, bool $headFirst, float $pause): void
    {
        $result = $pacer->admit(new Call('POST', 'http://api.example.com/v1/chat'));
        if (!$result instanceof Pass) { // as Turn does
            $this->at(min($result->again / 1e9, $pause), function () use ($pacer, &$jobs, $headFirst, $pause): void {
                $this->ask($pacer, $jobs, $headFirst, min(2 * $pause, 0.2));
            });

            return;
        }
        $this->at(0.001, function () use ($pacer, $result, &$jobs, $headFirst): void {
            $this->decide($pacer, $result, $jobs, $headFirst);
        });
    }

    private function decide(Pacer $pacer, Pass $pass, int &$jobs, bool $headFirst): void
    {
        $second = intdiv($this->now, 1_000_000_000);
        if ($second >= $this->reset) {
            [$this->reset, $this->left] = [$second + $this->seconds, $this->limit];
        }
        $slot = $this->inFlight < $this->slots;
        $allowed = $slot && $this->left >= $this->reserve;
        $back = 0;
        if ($allowed) {
            $back = $this->reserve - ($this->costs)($this->served++);
            $this->left -= $this->reserve - ($this->inHead ? $back : 0);
        }
        [$limit, $remaining, $reset] = $slot ? [$this->limit, $this->left, $this->reset] : [$this->slots, 0, $second + 1];
        $fields = ['Date' => gmdate('D, d M Y H:i:s', $second).' GMT', 'X-RateLimit-Limit' => (string) $limit,
            'X-RateLimit-Remaining' => (string) ($allowed ? $remaining : 0), 'X-RateLimit-Reset' => (string) $reset];
        if (!$allowed) {
            $this->refused++;
            $fields['Retry-After'] = (string) ($reset - $second);
            $this->at(0.001, function () use ($pacer, $pass, $fields, &$jobs, $headFirst): void {
                $wait = $pacer->answered($pass, 429, $fields);
                $this->at($wait->again / 1e9, function () use ($pacer, &$jobs, $headFirst): void {
                    $this->ask($pacer, $jobs, $headFirst, 0.01);
                });
            });

            return;
        }
        $this->most = max($this->most, ++$this->inFlight);
        if ($headFirst) {
            $this->at(0.001, static fn () => $pacer->began($pass, 200, $fields));
        }
        $this->at(0.001 + ($this->lasts)(), function () use ($pacer, $pass, $fields, $reset, $back, &$jobs, $headFirst): void {
            $this->inFlight--;
            if ($this->reset === $reset && !$this->inHead) {
                $this->left += $back;
            }
            $headFirst ? $pacer->ended($pass) : $pacer->answered($pass, 200, $fields);
            $this->work($pacer, $jobs, $headFirst);
        });
    }
}
