<?php

declare(strict_types=1);

namespace Weir\Pacer;

/**
 * Identifies a process to the others of its machine, so that what it held is free when it has been
 * killed. Linux shows in /proc which processes live, and when they started; another process with
 * the same number has another start.
 *
 * @internal
 */
final class Process
{
    /** Bytes of an identity. */
    public const SIZE = 20;

    /** Of a process of which no other can know whether it lives. */
    private const UNKNOWN = "\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0";

    /** How long what a process holds counts after its last step: it lives, or nobody knows. */
    private const LIVES = 3600 * Clock::SECOND;
    private const MAY_LIVE = 600 * Clock::SECOND;

    private static string $identity = self::UNKNOWN;
    private static int $pid = 0;

    /** Returns this process's identity: a hash of the machine's boot and namespace, pid and start. */
    public static function identity(): string
    {
        if (self::$pid !== getmypid()) {
            self::$pid = getmypid();
            $boot = @file_get_contents('/proc/sys/kernel/random/boot_id');
            $space = @readlink('/proc/self/ns/pid');
            $start = self::start(self::$pid);
            self::$identity = !is_string($boot) || !is_string($space) || !$start ? self::UNKNOWN
                : substr(hash('sha256', $boot.$space, true), 0, 8).pack('VP', self::$pid, $start);
        }

        return self::$identity;
    }

    /** Reports whether what a process holds is free, so many nanoseconds after its last step. */
    public static function gone(string $identity, int $age): bool
    {
        $own = self::identity();
        if ($own === self::UNKNOWN || substr($identity, 0, 8) !== substr($own, 0, 8)) {
            return $age > self::MAY_LIVE;
        }
        ['pid' => $pid, 'start' => $was] = unpack('Vpid/Pstart', $identity, 8);
        $start = self::start($pid);

        return $start === null ? $age > self::MAY_LIVE : $start !== $was || $age > self::LIVES;
    }

    /** Returns when a process started, 0 if there is none, or null if nobody knows. */
    private static function start(int $pid): ?int
    {
        $stat = @file_get_contents("/proc/$pid/stat");
        if ($stat === false) {
            return @is_dir('/proc/1') ? 0 : null; // else the processes of other users are hidden
        }
        $fields = explode(' ', substr($stat, strrpos($stat, ')') + 2));

        return in_array($fields[0], ['Z', 'X'], true) ? 0 : (int) $fields[19];
    }
}
