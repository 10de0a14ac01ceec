<?php

declare(strict_types=1);

namespace Weir\Pacer;

/**
 * Reads the state of a budget from the response of any server: the contract's fields, those of the
 * IETF drafts, and those of a table of dialects. It is the Go package headers, standing.go and
 * list.go, in PHP.
 *
 * The form of a Reset decides what it means. If a form has two meanings, the longer wait is used.
 *
 * @internal
 */
final class Dialects
{
    /**
     * Limit, remaining, reset. Of two with the same limit, the first that the response has is used:
     * Discord sends X-RateLimit-Reset too. The fourth is true if the units are not requests: then
     * the window matters only if nothing is left.
     */
    private const TABLE = [
        ['x-ratelimit-limit', 'x-ratelimit-remaining', 'x-ratelimit-reset-after', false],
        ['x-ratelimit-limit', 'x-ratelimit-remaining', 'x-ratelimit-reset', false],
        ['ratelimit-limit', 'ratelimit-remaining', 'ratelimit-reset', false],
        ['x-rate-limit-limit', 'x-rate-limit-remaining', 'x-rate-limit-reset', false],
        ['x-ratelimit-limit-requests', 'x-ratelimit-remaining-requests', 'x-ratelimit-reset-requests', false],
        ['x-ratelimit-limit-tokens', 'x-ratelimit-remaining-tokens', 'x-ratelimit-reset-tokens', true],
        ['anthropic-ratelimit-requests-limit', 'anthropic-ratelimit-requests-remaining', 'anthropic-ratelimit-requests-reset', false],
        ['anthropic-ratelimit-tokens-limit', 'anthropic-ratelimit-tokens-remaining', 'anthropic-ratelimit-tokens-reset', true],
    ];

    /** Discord, GitHub. */
    private const NAMES = ['x-ratelimit-bucket', 'x-ratelimit-resource'];

    /** Nanoseconds of the units of a duration such as 6m0s. */
    private const UNITS = ['ns' => 1, 'us' => 1e3, 'µs' => 1e3, 'μs' => 1e3, 'ms' => 1e6,
        's' => 1e9, 'm' => 60e9, 'h' => 3600e9];

    /**
     * Returns the budget that binds: the one with the smallest Remaining, of equals the one that is
     * restored last. Null if there are no known fields, or none that can be read.
     *
     * @param array<string, list<string>> $h          as Fields::lower returns them
     * @param int                         $date       Unix seconds of the response; 0: unknown
     * @param int                         $retryAfter nanoseconds, of a refusal; 0: unknown
     */
    public static function read(array $h, int $date, int $retryAfter): ?Report
    {
        $best = LimitList::read($h);
        $read = ''; // the field of the last budget that was read
        foreach (self::TABLE as [$limit, $remaining, $reset, $spent]) {
            if ($limit === $read || !isset($h[$limit], $h[$remaining], $h[$reset])) {
                continue;
            }
            $f = self::dialect($h, $limit, $remaining, $reset, $date, $retryAfter);
            if ($f === null) {
                continue;
            }
            $read = $limit;
            if ($spent && $f->remaining > 0) {
                continue;
            }
            if ($best === null || $f->remaining < $best->remaining
                || $f->remaining === $best->remaining && self::left($f, $date) > self::left($best, $date) + 1) {
                $best = $f;
            }
        }

        return $best;
    }

    /**
     * Returns the name of the budget that X-RateLimit fields describe, or an empty string.
     *
     * @param array<string, list<string>> $h
     */
    public static function budgetName(array $h): string
    {
        foreach (self::NAMES as $name) {
            if (count($h[$name] ?? []) === 1) {
                return $h[$name][0];
            }
        }

        return '';
    }

    /** Returns the seconds until the budget is restored. */
    private static function left(Report $f, int $date): float
    {
        return $f->reset > 0 ? $f->reset - $date : $f->after / 1e9;
    }

    /** @param array<string, list<string>> $h */
    private static function dialect(array $h, string $limit, string $remaining, string $reset, int $date, int $retryAfter): ?Report
    {
        $f = new Report();
        [$f->limit, $window] = self::limit($h[$limit]);
        $left = count($h[$remaining]) === 1 ? Fields::int($h[$remaining][0]) : null;
        if ($f->limit < 1 || $left === null || count($h[$reset]) !== 1
            || !self::readReset($f, $reset, $h[$reset][0], $window, $date, $retryAfter)) {
            return null;
        }
        $f->remaining = $left;
        if (str_starts_with($limit, 'x-ratelimit-limit')) {
            $f->name = self::budgetName($h);
        }

        return $f;
    }

    /**
     * Reads a limit, which may be followed by the windows that it was chosen from: 10, 10;w=60,
     * 500;w=3600. It returns the limit, 0 if it cannot be read, and the length of the first window
     * with that limit in seconds, 0 if unknown.
     *
     * @param list<string> $values
     *
     * @return array{int, int}
     */
    private static function limit(array $values): array
    {
        $text = implode(',', $values);
        $policies = explode(',', $text);
        [$number, $parameters] = explode(';', $policies[0], 2) + [1 => ''];
        $limit = Fields::int(trim($number)) ?? 0;
        if ($limit < 1 || count($values) > 1 && !str_contains($text, ';')) {
            return [0, 0];
        }
        $window = self::length($parameters);
        if ($window > 0 || count($policies) === 1) {
            return [$limit, $window];
        }
        foreach (array_slice($policies, 1) as $policy) {
            [$number, $parameters] = explode(';', $policy, 2) + [1 => ''];
            if (Fields::int(trim($number)) === $limit) {
                return [$limit, self::length($parameters)];
            }
        }

        return [$limit, 0];
    }

    /** Returns the parameter w, 0 if there is none. */
    private static function length(string $parameters): int
    {
        foreach (explode(';', $parameters) as $p) {
            $p = trim($p);
            if (str_starts_with($p, 'w=')) {
                $w = Fields::int(substr($p, 2));
                if ($w !== null) {
                    return $w;
                }
            }
        }

        return 0;
    }

    /** Reads a Reset into the report; false if it has none of the known forms. */
    private static function readReset(Report $f, string $field, string $value, int $window, int $date, int $retryAfter): bool
    {
        $unix = HttpDate::parseAny($value);
        if ($unix !== null) {
            $f->reset = $unix;

            return true;
        }
        $duration = self::duration($value);
        if ($duration !== null) {
            $f->after = $duration;

            return true;
        }
        $number = Fields::decimal($value);
        if ($number === null || $number >= 1e14) {
            return false;
        }
        $months = Budget::LONGEST_WINDOW;
        if (str_ends_with($field, '-after') && $number <= $months) {
            $f->after = self::seconds($number);
        } elseif ($number <= $months) {
            $f->after = self::seconds(self::inMillis($number, $window, $retryAfter) ? $number / 1000 : $number);
        } elseif ($number >= 1e11) {
            $f->reset = (int) ceil($number / 1000);
        } elseif ($number >= 1e8 || $date > 0 && abs($number - $date) <= $months) {
            $f->reset = (int) ceil($number);
        } else {
            $f->after = self::seconds($number / 1000);
        }

        return true;
    }

    /** Reports whether a response proves that a time left is in milliseconds. */
    private static function inMillis(float $number, int $window, int $retryAfter): bool
    {
        if ($window > 0 && $number > $window) {
            return $number <= $window * 1000.0;
        }

        return $retryAfter > 0 && $number >= 500 && abs($number / 1000 - $retryAfter / 1e9) <= 1;
    }

    /** Returns a number of seconds in nanoseconds, rounded up. */
    private static function seconds(float $n): int
    {
        return (int) ceil($n * 1e9);
    }

    /** Reads a duration such as 6m0s in nanoseconds. */
    private static function duration(string $value): ?int
    {
        $part = '(\d+(?:\.\d*)?|\.\d+)(ns|us|µs|μs|ms|s|m|h)';
        if (preg_match('/^(?:'.$part.')+\z/', $value) !== 1) {
            return null;
        }
        preg_match_all('/'.$part.'/', $value, $all, PREG_SET_ORDER);
        $sum = 0.0;
        foreach ($all as [, $number, $unit]) {
            $sum += (float) $number * self::UNITS[$unit];
        }

        return $sum < (float) Budget::ENDLESS ? (int) $sum : null;
    }
}
