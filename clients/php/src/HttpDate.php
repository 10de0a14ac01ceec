<?php

declare(strict_types=1);

namespace Weir\Pacer;

/**
 * Reads HTTP dates (RFC 9110, section 5.6.7), and the dates that servers send instead.
 *
 * @internal
 */
final class HttpDate
{
    private const MONTHS = ['Jan' => 1, 'Feb' => 2, 'Mar' => 3, 'Apr' => 4, 'May' => 5, 'Jun' => 6,
        'Jul' => 7, 'Aug' => 8, 'Sep' => 9, 'Oct' => 10, 'Nov' => 11, 'Dec' => 12];

    /**
     * Reads an HTTP date in any of its three formats. The day of the week must be that of the date,
     * and the date must not be before 1970. It returns Unix seconds, or null.
     */
    public static function parse(string $text): ?int
    {
        if (preg_match('/^\w+, (\d\d)[ -](\w{3})[ -](\d{4}|\d\d) (\d\d):(\d\d):(\d\d) GMT\z/', $text, $m) === 1) {
            [, $day, $month, $year, $hour, $minute, $second] = $m;
        } elseif (preg_match('/^\w{3} (\w{3}) ([ \d]\d) (\d\d):(\d\d):(\d\d) (\d{4})\z/', $text, $m) === 1) {
            [, $month, $day, $hour, $minute, $second, $year] = $m;
        } else {
            return null;
        }
        if (!isset(self::MONTHS[$month])) {
            return null;
        }
        if (strlen($year) === 2) {
            $year = ((int) $year >= 69 ? '19' : '20').$year;
        }
        $unix = gmmktime((int) $hour, (int) $minute, (int) $second, self::MONTHS[$month], (int) $day, (int) $year);
        if ($unix === false || $unix < 0) {
            return null;
        }
        foreach (['D, d M Y H:i:s \G\M\T', 'l, d-M-y H:i:s \G\M\T'] as $form) {
            if (gmdate($form, $unix) === $text) {
                return $unix;
            }
        }
        $asctime = gmdate('D M ', $unix).sprintf('%2d', (int) gmdate('j', $unix)).gmdate(' H:i:s Y', $unix);

        return $asctime === $text ? $unix : null;
    }

    /**
     * Reads any date, rounded up to a second: an HTTP date, else one such as 2026-11-22T04:27:25Z.
     */
    public static function parseAny(string $text): ?int
    {
        $unix = self::parse($text);
        if ($unix !== null) {
            return $unix;
        }
        $form = '/^(\d{4})-(\d\d)-(\d\d)([T ])(\d\d):(\d\d):(\d\d)(?:[.,](\d+))?(Z|[+-]\d\d:?\d\d)?\z/';
        if (preg_match($form, $text, $m) !== 1) {
            return null;
        }
        [, $year, $month, $day, $between, $hour, $minute, $second] = $m;
        $zone = $m[9] ?? '';
        if (!checkdate((int) $month, (int) $day, max((int) $year, 1)) || $hour > 23 || $minute > 59 || $second > 59
            || (int) $year < 1970 || $between === ' ' && strlen($zone) === 5) {
            return null;
        }
        $unix = gmmktime((int) $hour, (int) $minute, (int) $second, (int) $month, (int) $day, (int) $year);
        if ($unix === false) {
            return null;
        }
        if (strlen($zone) > 1) {
            $hours = (int) substr($zone, 1, 2);
            $minutes = (int) substr($zone, -2);
            if ($hours > 24 || $minutes > 59) {
                return null;
            }
            $unix -= ($zone[0] === '-' ? -1 : 1) * ($hours * 3600 + $minutes * 60);
        }
        if ($unix <= 0) {
            return null;
        }

        return trim($m[8] ?? '', '0') === '' ? $unix : $unix + 1;
    }
}
