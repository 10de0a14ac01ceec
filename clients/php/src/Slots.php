<?php

declare(strict_types=1);

namespace Weir\Pacer;

/**
 * The calls of one caller that may be in flight at a time, as the limiter of the routes declares
 * (in_flight). A call holds a slot from before it is sent until its answer has ended. The state has
 * how many each process holds. A process that has been killed holds none.
 *
 * @internal
 */
final class Slots
{
    /** With more processes than fit a state, there is no slot. */
    private const MAX_PROCESSES = 150;
    private const ENTRY = 24 + Process::SIZE;

    /** How many this process holds. */
    public int $held = 0;
    /** Whether the store may say that this process holds more, because it failed. */
    public bool $unwritten = false;

    public function __construct(
        /** Identifies them, with the credential as a hash. */
        public readonly string $key,
        public readonly int $limit,
    ) {
    }

    /**
     * Returns the next state, in which a process holds what it wants if that is free, else what it
     * holds now. $held is what it holds then.
     */
    public function next(?string $state, int $process, int $wanted, int $now, ?int &$held = null): string
    {
        $others = [];
        $taken = 0;
        foreach (str_split($state ?? '', self::ENTRY) as $entry) {
            if (strlen($entry) === self::ENTRY) {
                $e = unpack('Pprocess/Pheld/Pat', $entry);
                if ($e['process'] !== $process) {
                    $its = min(max($e['held'], 0), $this->limit);
                    $at = min(max($e['at'], 0), $now); // the clock may have been set back
                    $others[] = [pack('PPP', $e['process'], $its, $at).substr($entry, 24), $its, $at];
                    $taken += $its;
                }
            }
        }
        if ($wanted > $this->held && $taken + $wanted > $this->limit) {
            foreach ($others as $i => [$entry, $its, $at]) {
                if (Process::gone(substr($entry, 24), $now - $at)) {
                    unset($others[$i]);
                    $taken -= $its;
                }
            }
        }
        $fits = $taken + $wanted <= $this->limit && count($others) < self::MAX_PROCESSES;
        $held = $wanted <= $this->held || $fits ? $wanted : $this->held;
        $text = implode('', array_column($others, 0));

        return $held === 0 ? $text : $text.pack('PPP', $process, $held, $now).Process::identity();
    }

    /** Reports whether a 429 is that of the limit in flight, whose fields describe no window. */
    public function refused(Line $line, Answer $a): bool
    {
        $f = $a->fields;
        if (!$a->refused || $a->kind !== Answer::BINDING || $f->limit !== $this->limit || $f->retryAfter !== 1
            || $f->date > 0 && $f->reset - $f->date > 1) {
            return false;
        }
        foreach ($line->windows as $window) {
            if ($window->declaredLimit === $this->limit) {
                return false;
            }
        }

        return true;
    }
}
