<?php

declare(strict_types=1);

namespace Weir\Pacer;

/**
 * A limiter of Routes: its name, what a request costs, and its windows.
 *
 * @internal
 */
final class Limiter
{
    /**
     * @param list<array{limit: int, seconds: int, span: string, by: string,
     *     key: list<list<string>>}> $windows the span distinguishes windows of one length
     */
    public function __construct(
        public readonly string $name,
        public readonly int $cost,
        public readonly array $windows,
    ) {
    }
}
