<?php

declare(strict_types=1);

namespace Weir\Pacer;

/**
 * Reads what a response states about a budget: the contract's fields, else those of another
 * dialect (Dialects).
 *
 * @internal
 */
final class Fields
{
    public const LIMIT = 'x-ratelimit-limit';
    public const REMAINING = 'x-ratelimit-remaining';
    public const RESET = 'x-ratelimit-reset';
    public const RETRY_AFTER = 'retry-after';
    public const DATE = 'date';

    /** A Reset in Unix seconds is between these: 1973 and 5138. A smaller number is time left. */
    private const TOO_NEAR = 100_000_000;
    private const TOO_FAR = 100_000_000_000;

    /**
     * Reads the fields of a response.
     *
     * @param iterable<string, string|list<string>> $headers in any letter case
     */
    public static function read(int $status, iterable $headers): Answer
    {
        $h = self::lower($headers);
        $refused = $status === 429;
        // The fields of a cached response are out of date.
        if (($h['age'][0] ?? '0') !== '0') {
            return new Answer(Answer::NO_FIELDS, $refused, null, $refused ? self::retryAfter($h) ?? 0 : 0);
        }
        $f = self::contract($h, $refused);
        // perhaps only the Retry-After is invalid
        $f ??= $refused ? self::contract($h, false) : null;
        if ($f !== null) {
            $f->name = Dialects::budgetName($h);
        } else {
            $f = self::dialect($h, $refused);
        }

        return new Answer(
            $f === null ? Answer::NO_FIELDS : Answer::BINDING,
            $refused,
            $f,
            $refused ? self::retryAfter($h) ?? 0 : 0,
        );
    }

    /**
     * Returns header fields under names in lower case, each as a list of values.
     *
     * @param iterable<string, string|list<string>> $headers
     *
     * @return array<string, list<string>>
     */
    public static function lower(iterable $headers): array
    {
        $h = [];
        foreach ($headers as $name => $values) {
            foreach ((array) $values as $value) {
                $h[strtolower((string) $name)][] = (string) $value;
            }
        }

        return $h;
    }

    /**
     * Reads the contract's fields, or returns null if they are not exactly in its form.
     *
     * @param array<string, list<string>> $h
     */
    private static function contract(array $h, bool $withRetryAfter): ?Report
    {
        $f = new Report();
        if (isset($h[self::DATE])) {
            $date = count($h[self::DATE]) === 1 ? HttpDate::parse($h[self::DATE][0]) : null;
            if ($date === null) {
                return null;
            }
            $f->date = $date;
        }
        if ($withRetryAfter && isset($h[self::RETRY_AFTER])) {
            $seconds = count($h[self::RETRY_AFTER]) === 1 ? self::wholeSeconds($h[self::RETRY_AFTER][0], $f->date) : null;
            if ($seconds === null) {
                return null;
            }
            $f->retryAfter = $seconds;
        }
        $numbers = [];
        foreach ([self::LIMIT, self::REMAINING, self::RESET] as $name) {
            $number = count($h[$name] ?? []) === 1 ? self::int($h[$name][0]) : null;
            if ($number === null) {
                return null;
            }
            $numbers[] = $number;
        }
        [$f->limit, $f->remaining, $f->reset] = $numbers;
        if ($f->limit === 0 || $f->reset < self::TOO_NEAR || $f->reset >= self::TOO_FAR) {
            return null;
        }

        return $f;
    }

    /** Reads a Retry-After as the contract has it: a whole number, or a date after Date. */
    private static function wholeSeconds(string $value, int $date): ?int
    {
        if ($value !== '' && $value[0] >= '0' && $value[0] <= '9') {
            return self::int($value);
        }
        $unix = HttpDate::parse($value);

        return $unix === null || $date === 0 ? null : max($unix - $date, 0);
    }

    /**
     * Reads fields that are not the contract's, or not in its form.
     *
     * @param array<string, list<string>> $h
     */
    private static function dialect(array $h, bool $refused): ?Report
    {
        $date = 0;
        if (isset($h[self::DATE])) {
            $date = count($h[self::DATE]) === 1 ? HttpDate::parse($h[self::DATE][0]) : null;
            if ($date === null) {
                return null;
            }
        }
        $f = Dialects::read($h, $date, $refused ? self::retryAfter($h) ?? 0 : 0);
        if ($f !== null) {
            $f->date = $date;
        }

        return $f;
    }

    /**
     * Returns how many nanoseconds a 429 asks to wait, or null. A wait that is longer than any
     * window is not believed; 0 means a second.
     *
     * @param array<string, list<string>> $h as lower() returns them
     */
    public static function retryAfter(array $h): ?int
    {
        if (count($h[self::RETRY_AFTER] ?? []) !== 1) {
            return null;
        }
        $value = $h[self::RETRY_AFTER][0];
        $seconds = self::decimal($value);
        if ($seconds === null) {
            $unix = HttpDate::parseAny($value);
            $date = count($h[self::DATE] ?? []) === 1 ? HttpDate::parse($h[self::DATE][0]) : null;
            if ($unix === null || $date === null || $date === 0) {
                return null;
            }
            $seconds = (float) max($unix - $date, 0);
        }
        if ($seconds > Budget::LONGEST_WINDOW) {
            return null;
        }

        return $seconds == 0 ? Clock::SECOND : (int) ceil($seconds * 1e9);
    }

    /** Reads digits without a sign, within 63 bits; null if the value is anything else. */
    public static function int(string $value): ?int
    {
        if ($value === '' || strspn($value, '0123456789') !== strlen($value)) {
            return null;
        }
        $digits = ltrim($value, '0');
        $most = (string) PHP_INT_MAX;
        if (strlen($digits) > strlen($most) || strlen($digits) === strlen($most) && strcmp($digits, $most) > 0) {
            return null;
        }

        return (int) $digits;
    }

    /** Reads digits with an optional fraction of up to nine digits; null for anything else. */
    public static function decimal(string $value): ?float
    {
        return preg_match('/^\d{1,18}(\.\d{1,9})?\z/', $value) === 1 ? (float) $value : null;
    }
}
