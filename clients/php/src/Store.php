<?php

declare(strict_types=1);

namespace Weir\Pacer;

/**
 * Keeps the state of each budget where several processes find it.
 */
interface Store
{
    /**
     * Replaces the state under a key by the one that $change returns, in one atomic step: no other
     * process changes it between the two. A missing state is null.
     *
     * update may call $change again after a conflict. It fails rather than wait long, because a
     * request waits for it. Keys are 64 hexadecimal digits. States are bytes, a few hundred as a
     * rule and at most 8,000; they may be dropped an hour after their last change.
     *
     * @param callable(?string): string $change
     *
     * @throws \Exception if the state could not be read or written
     */
    public function update(string $key, callable $change): void;
}
