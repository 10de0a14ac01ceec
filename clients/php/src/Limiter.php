<?php

declare(strict_types=1);

namespace Weir\Pacer;

/**
 * A limiter of Routes: its name, what a request costs or reserves, its windows, and how many requests
 * may be in flight at a time.
 *
 * @internal
 */
final class Limiter
{
    /**
     * @param list<array{limit: int, seconds: int, span: string, by: string,
     *     key: list<list<string>>, requests: bool, settles: bool, later: bool}> $windows the span
     *     distinguishes windows of one length; requests: each costs 1; settles: answers give units
     *     back; later: when they have ended, and not with their head
     * @param ?array{limit: int, by: string, key: list<list<string>>} $inFlight null: any number
     */
    public function __construct(
        public readonly string $name,
        public readonly int $cost,
        public readonly array $windows,
        public readonly ?array $inFlight = null,
    ) {
    }
}
