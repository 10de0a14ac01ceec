<?php

declare(strict_types=1);

namespace Weir\Pacer\Symfony;

/**
 * The requests of a client that wait, in their order, and those in flight. It does not keep a
 * response that nobody else has.
 *
 * @internal
 */
final class Queues
{
    /** @var array<string, list<\WeakReference<PacedResponse>>> */
    private array $waiting = [];

    /** @var array<int, \WeakReference<PacedResponse>> */
    private array $flying = [];

    public function add(string $line, PacedResponse $r, bool $first = false): void
    {
        $r->sending->line = $line;
        $one = \WeakReference::create($r);
        $this->waiting[$line] = $first ? [$one, ...($this->waiting[$line] ?? [])] : [...($this->waiting[$line] ?? []), $one];
    }

    /** @return list<PacedResponse> what waits for the same as a response */
    public function of(PacedResponse $r): array
    {
        return array_values(array_filter(array_map(
            static fn (\WeakReference $one): ?PacedResponse => $one->get(),
            $this->waiting[$r->sending->line] ?? [],
        )));
    }

    public function remove(PacedResponse $r): void
    {
        $line = $r->sending->line;
        $this->waiting[$line] = array_values(array_filter(
            $this->waiting[$line] ?? [],
            static fn (\WeakReference $one): bool => $one->get() !== null && $one->get() !== $r,
        ));
        if ($this->waiting[$line] === []) {
            unset($this->waiting[$line]);
        }
    }

    public function flying(PacedResponse $r): void
    {
        $this->flying[spl_object_id($r)] = \WeakReference::create($r);
    }

    public function landed(PacedResponse $r): void
    {
        unset($this->flying[spl_object_id($r)]);
    }

    /** @return list<PacedResponse> */
    public function inFlight(): array
    {
        return array_values(array_filter(
            array_map(static fn (\WeakReference $one): ?PacedResponse => $one->get(), $this->flying),
            static fn (?PacedResponse $r): bool => $r !== null && $r->inner !== null,
        ));
    }
}
