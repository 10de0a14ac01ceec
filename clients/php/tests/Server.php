<?php

declare(strict_types=1);

namespace Weir\Pacer\Tests;

use Weir\Pacer\Pacer;
use Weir\Pacer\Store;
use Weir\Pacer\Time;

/**
 * A server with one limit, and a time that passes only when somebody sleeps. Its windows begin with
 * their first request.
 */
final class Server
{
    /** Unix nanoseconds. */
    public int $now = 1_800_000_000_000_000_000;
    /** How far the clients' clock is ahead of the server's, in nanoseconds. */
    public int $ahead = 0;
    public int $served = 0;
    public int $refused = 0;
    /** @var list<int> nanoseconds of each sleep */
    public array $slept = [];
    /** @var ?\Closure(): void what happens elsewhere during a sleep */
    public ?\Closure $meanwhile = null;
    /** @var list<string> bodies that were served */
    public array $bodies = [];
    private int $left = 0;
    private int $reset = 0;

    public function __construct(public int $limit = 10, public int $seconds = 60)
    {
    }

    public function pacer(int $threshold = 0, ?Store $store = null): Pacer
    {
        return new Pacer($store, threshold: $threshold, clock: fn (): int => $this->now + $this->ahead);
    }

    public function time(): Time
    {
        return new class($this) extends Time {
            public function __construct(private readonly Server $server)
            {
            }

            public function now(): int
            {
                return $this->server->now;
            }

            public function sleep(int $nanos): void
            {
                if (count($this->server->slept) === 10_000) {
                    throw new \LogicException('it sleeps for ever');
                }
                $this->server->slept[] = $nanos;
                $this->server->now += $nanos;
                if ($this->server->meanwhile !== null) {
                    ($this->server->meanwhile)();
                }
            }
        };
    }

    /** Somebody else spends units. */
    public function spend(int $units): void
    {
        $this->turn();
        $this->left = max($this->left - $units, 0);
    }

    private function turn(): int
    {
        $second = intdiv($this->now, 1_000_000_000);
        if ($second >= $this->reset) {
            $this->reset = $second + $this->seconds;
            $this->left = $this->limit;
        }

        return $second;
    }

    /** @return array{int, array<string, string>} the status and the fields of an answer */
    public function answer(string $body = ''): array
    {
        $second = $this->turn();
        $status = 200;
        $fields = ['Date' => gmdate('D, d M Y H:i:s', $second).' GMT'];
        if ($this->left > 0) {
            $this->left--;
            $this->served++;
            $this->bodies[] = $body;
        } else {
            $this->refused++;
            $status = 429;
            $fields['Retry-After'] = (string) ($this->reset - $second);
        }
        $fields += [
            'X-RateLimit-Limit' => (string) $this->limit,
            'X-RateLimit-Remaining' => (string) $this->left,
            'X-RateLimit-Reset' => (string) $this->reset,
        ];
        $this->now += 1_000_000; // a millisecond

        return [$status, $fields];
    }
}
