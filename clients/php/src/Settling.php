<?php

declare(strict_types=1);

namespace Weir\Pacer;

/**
 * What a window gets back after the answers of its calls. Its limiter charges a call the most that
 * it can cost, and gives back what it has not cost. A response states what is left while its own
 * call is still charged in full, and no response states what has come back since. So the state
 * remembers which calls have ended, and how much of their charge calls have kept.
 *
 * It is the Go package pacer's settling.go in PHP, for all processes. Budget::$started orders starts
 * and ends.
 *
 * @internal
 */
final class Settling
{
    private const MAX_ENDED = 64; // between two responses
    private const MAX_PROCESSES = 64;
    private const SEEN = 0x80; // beside the number of those that have ended

    /** How much of what no call has shown again lasts from window to window, so that one tries again. */
    private const UNSEEN_MEMORY = 0.9;

    /** After so long without a step of a process it is looked whether it lives. */
    private const LOOK = 60 * Clock::SECOND;

    /** Budget::$started when the newest response was read. */
    private int $read = 0;

    /**
     * The calls that have ended, and whose units no response includes yet.
     *
     * @var list<array{int, int}> Budget::$started at the end, and the units that were charged
     */
    private array $ended = [];

    /** The part of their charge that calls have kept, at most; null: not learned. */
    private ?float $kept = null;

    /** Whether a call of this window has shown what it kept. */
    private bool $seen = false;

    /**
     * The processes with calls under way.
     *
     * @var array<int, array{open: int, at: int, identity: string}> open are the units of the calls
     *                                                              whose answers have not ended
     */
    private array $processes = [];

    /** Sets what a process has under way, and drops the processes that have been killed. */
    public function set(int $process, int $flying, int $open, int $now): void
    {
        foreach ($this->processes as $other => $p) {
            $this->processes[$other]['at'] = min($p['at'], $now); // the clock may have been set back
            if ($other === $process || $now - $p['at'] >= self::LOOK && Process::gone($p['identity'], $now - $p['at'])) {
                unset($this->processes[$other]);
            }
        }
        if ($flying + $open > 0) {
            $this->processes[$process] = ['open' => $open, 'at' => $now, 'identity' => Process::identity()];
        }
    }

    /** Reports whether a process has calls under way, however long they last. */
    public function has(int $process): bool
    {
        return isset($this->processes[$process]);
    }

    private function open(): int
    {
        return array_sum(array_column($this->processes, 'open'));
    }

    /**
     * Returns how many units the calls that have ended give back, as far as was learned. Calls that
     * ended while the newest response was on its way may be in that already. They only count if no
     * call is under way that will show more.
     */
    public function back(Budget $b): int
    {
        $idle = $b->inFlight() === 0 && $this->open() === 0;
        if ($this->kept === null && !$idle) {
            return 0;
        }
        $kept = $this->kept ?? 0.0; // the response to one call will show it
        $units = 0;
        foreach ($this->ended as [$at, $charged]) {
            if ($idle || $at > $this->read) {
                $units += $charged - (int) ($kept * $charged);
            }
        }

        return $units;
    }

    /** Returns how many units of calls that were admitted can come back at most. */
    public function most(Budget $b): int
    {
        return array_sum(array_column($this->ended, 1)) + $this->open() + $b->inFlight();
    }

    /** Records that a call has ended. */
    public function end(Budget $b, int $units): void
    {
        if (count($this->ended) === self::MAX_ENDED) {
            $this->ended[self::MAX_ENDED - 1][1] += $units; // as if it had ended with that one
        } else {
            $this->ended[] = [++$b->started, $units];
        }
    }

    /**
     * Handles a response that states what is left. $was and $is are the budget before and after it.
     * A refusal shows that calls keep all of their charge, or that others spend.
     */
    public function observe(Sent $s, Budget $was, Budget $is, bool $refused): void
    {
        if ($is->reset !== $was->reset || $is->limit !== $was->limit) {
            $this->ended = []; // another window: nothing comes back to it
            if (!$this->seen && $this->kept !== null) {
                $this->kept *= self::UNSEEN_MEMORY;
            }
            $this->seen = false;
        }
        $full = 0;
        $certain = $is->inFlight() === 0 && $s->place > $this->read;
        $left = [];
        foreach ($this->ended as $e) {
            if ($e[0] > $s->place) {
                $left[] = $e;
                continue;
            }
            $full += $e[1];
            $certain = $certain && $e[0] > $this->read;
        }
        if ($full > 0 && $refused) {
            $this->learn(1);
        } elseif ($full > 0 && $certain && $was->phase === Budget::KNOWN && $is->phase === Budget::KNOWN && !$was->upperBound) {
            $this->learn(($was->remaining - $s->cost + $full - $is->remaining) / $full);
        }
        $this->ended = $left;
        $this->read = $is->started;
    }

    /**
     * Takes a part into what calls keep of their charge. That falls by a thousandth each time, so it
     * is close to the most that any call has kept lately: with less memory, calls of very different
     * costs are refused. What others spend at the same time makes it larger.
     */
    private function learn(float $part): void
    {
        $this->seen = true;
        $part = min(max($part, 0.0), 1.0);
        $this->kept = $this->kept === null ? $part : max($part, 0.999 * $this->kept);
    }

    public function encode(): string
    {
        $processes = array_slice($this->processes, -self::MAX_PROCESSES, null, true);
        $text = pack('CCPe', count($this->ended) | ($this->seen ? self::SEEN : 0), count($processes), $this->read, $this->kept ?? -1);
        foreach ($this->ended as [$at, $units]) {
            $text .= pack('PP', $at, $units);
        }
        foreach ($processes as $process => $p) {
            $text .= pack('PPP', $process, $p['open'], $p['at']).$p['identity'];
        }

        return $text;
    }

    /** Returns the settling of an encoded form; an empty one if the form is broken. */
    public static function decode(string $text): self
    {
        $s = new self();
        if (strlen($text) < 18) {
            return $s;
        }
        $head = unpack('Cended/Cprocesses/Pread/ekept', $text);
        $seen = ($head['ended'] & self::SEEN) !== 0;
        $head['ended'] &= ~self::SEEN;
        if (strlen($text) !== 18 + 16 * $head['ended'] + (24 + Process::SIZE) * $head['processes'] || !($head['kept'] <= 1)) {
            return $s;
        }
        $s->read = $head['read'];
        $s->seen = $seen;
        $s->kept = $head['kept'] < 0 ? null : $head['kept'];
        for ($at = 18, $n = $head['ended']; $n > 0; $n--, $at += 16) {
            ['at' => $ended, 'units' => $units] = unpack('Pat/Punits', $text, $at);
            $s->ended[] = [$ended, min(max($units, 0), Budget::MOST >> 7)];
        }
        for ($n = $head['processes']; $n > 0; $n--, $at += 24 + Process::SIZE) {
            $p = unpack('Pprocess/Popen/Pat', $text, $at);
            $s->processes[$p['process']] = ['open' => min(max($p['open'], 0), Budget::MOST >> 7), 'at' => max($p['at'], 0),
                'identity' => substr($text, $at + 24, Process::SIZE)];
        }

        return $s;
    }
}
