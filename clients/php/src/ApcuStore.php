<?php

declare(strict_types=1);

namespace Weir\Pacer;

/**
 * Keeps states in APCu, for the workers of one PHP-FPM.
 *
 * APCu can compare and swap integers only. So each state is stored under a random number, and the
 * key has the number of the current one: a change stores the next state and then swaps the number.
 * Nothing is locked, so a worker that is killed at any point delays nobody.
 */
final class ApcuStore implements Store
{
    /** Seconds: a state may be dropped an hour after its last change. */
    private const LIFE = 3600;
    /** Seconds: the number's life begins once, so it is longer. When it ends, the state is lost. */
    private const NUMBER_LIFE = 86400;

    /**
     * @param string $prefix   of the keys in APCu
     * @param float  $patience seconds to go on trying while other processes change the same state
     */
    public function __construct(private readonly string $prefix = 'weir:', private readonly float $patience = 0.05)
    {
        if (!function_exists('apcu_enabled') || !apcu_enabled()) {
            throw new \LogicException('ApcuStore needs the extension apcu, enabled: on the command line by apc.enable_cli=1, where it is of one process only');
        }
    }

    public function update(string $key, callable $change): void
    {
        $key = $this->prefix.$key;
        $until = hrtime(true) + (int) ($this->patience * 1e9);
        for ($try = 1; !$this->try($key, $change); $try++) {
            if (hrtime(true) > $until) {
                throw new StoreException("update $key in APCu: other processes changed it $try times meanwhile");
            }
            usleep(random_int(1, 20 * min($try, 10)));
        }
    }

    private function try(string $key, callable $change): bool
    {
        $number = apcu_fetch($key);
        $state = is_int($number) ? apcu_fetch("$key:$number") : null;
        if ($state === false && apcu_fetch($key) !== $number) {
            return false; // it was changed between the two
        }
        $next = random_int(1, PHP_INT_MAX);
        if (!apcu_store("$key:$next", $change(is_string($state) ? $state : null), self::LIFE)) {
            throw new StoreException("store $key in APCu: its memory is full (apc.shm_size)");
        }
        $swapped = is_int($number) ? apcu_cas($key, $number, $next) : apcu_add($key, $next, self::NUMBER_LIFE);
        apcu_delete($swapped ? "$key:$number" : "$key:$next");

        return $swapped;
    }
}
