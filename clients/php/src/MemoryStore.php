<?php

declare(strict_types=1);

namespace Weir\Pacer;

/** Keeps states in this process, for several Pacers of one script. */
final class MemoryStore implements Store
{
    /** @var array<string, string> */
    private array $states = [];

    public function update(string $key, callable $change): void
    {
        $state = $change($this->states[$key] ?? null);
        unset($this->states[$key]);
        $this->states[$key] = $state;
        if (count($this->states) > 4096) {
            array_shift($this->states); // the one that was changed first
        }
    }
}
