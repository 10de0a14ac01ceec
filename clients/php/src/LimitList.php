<?php

declare(strict_types=1);

namespace Weir\Pacer;

/**
 * Reads the field RateLimit of the IETF drafts: a list of windows as draft 10 has it, with their
 * limits in RateLimit-Policy, or the dictionary of draft 7, limit=100, remaining=50, reset=30.
 *
 * @internal
 */
final class LimitList
{
    private const MAX_MEMBERS = 64;
    private const MAX_LEFT = 100 * 365 * 24 * 3600;

    /**
     * Returns the window with the least left, or null.
     *
     * @param array<string, list<string>> $h
     */
    public static function read(array $h): ?Report
    {
        if (!isset($h['ratelimit'])) {
            return null;
        }
        $text = implode(',', $h['ratelimit']);
        if (!str_contains($text, '"')) {
            return self::dictionary($text);
        }
        $members = self::members($text);
        if ($members === null) {
            return null;
        }
        // without a policy the limits are unknown, the rest is still known
        $quotas = [];
        $policies = self::members(implode(',', $h['ratelimit-policy'] ?? []));
        foreach ($policies ?? [] as $name => $p) {
            $q = self::whole($p, 'q', 0);
            if ($q === null || isset($p['w']) && self::whole($p, 'w', 1) === null) {
                $quotas = [];
                break;
            }
            $quotas[$name] = $q;
        }
        $best = null;
        foreach ($members as $name => $p) {
            $remaining = self::whole($p, 'r', 0);
            $left = isset($p['t']) ? self::whole($p, 't', 0) : 0;
            if ($remaining === null || $left === null) {
                return null;
            }
            $f = new Report();
            $f->name = (string) $name;
            $f->remaining = $remaining;
            $f->after = min($left, self::MAX_LEFT) * Clock::SECOND;
            $f->limit = $quotas[$name] ?? 0;
            if ($best === null || $f->remaining < $best->remaining
                || $f->remaining === $best->remaining && $f->after > $best->after) {
                $best = $f;
            }
        }

        return $best;
    }

    private static function dictionary(string $text): ?Report
    {
        $values = [];
        foreach (explode(',', $text) as $part) {
            [$key, $value] = explode('=', trim(explode(';', $part, 2)[0]), 2) + [1 => ''];
            $n = Fields::int($value);
            if ($n === null) {
                return null;
            }
            $values[$key] = $n;
        }
        if (!isset($values['limit'], $values['remaining'], $values['reset']) || $values['limit'] < 1) {
            return null;
        }
        $f = new Report();
        $f->limit = $values['limit'];
        $f->remaining = $values['remaining'];
        $f->after = min($values['reset'], self::MAX_LEFT) * Clock::SECOND;

        return $f;
    }

    /**
     * Reads a list of strings with parameters (RFC 9651). It returns the parameters of each member
     * as they are written, by its name, or null if the text is no such list.
     *
     * @return array<string, array<string, string>>|null
     */
    private static function members(string $text): ?array
    {
        $text = trim($text, ' ');
        $members = [];
        if ($text === '') {
            return $members;
        }
        $item = '(?:"(?:[ !#-\[\]-~]|\\\\["\\\\])*"|-?\d{1,12}\.\d{1,3}(?!\d)|-?\d{1,15}(?![\d.])'
            .'|[A-Za-z*][A-Za-z0-9!#$%&\'*+.^_`|~:\/-]*|:[A-Za-z0-9+\/=]*:|\?[01]|@-?\d{1,15}(?![\d.])|%"[ !#-~]*")';
        $parameter = '; *([a-z*][a-z0-9_.*-]*)(?:=('.$item.'))?';
        for ($at = 0; ;) {
            if (count($members) === self::MAX_MEMBERS
                || preg_match('/\G"((?:[ !#-\[\]-~]|\\\\["\\\\])*)"((?:'.$parameter.')*)[ \t]*/A', $text, $m, 0, $at) !== 1) {
                return null;
            }
            $name = stripslashes($m[1]);
            if (isset($members[$name])) {
                return null;
            }
            preg_match_all('/'.$parameter.'/', $m[2], $all, PREG_SET_ORDER);
            $members[$name] = [];
            foreach ($all as $p) {
                $members[$name][$p[1]] = $p[2] ?? '?1'; // of two with one name the last is used
            }
            $at += strlen($m[0]);
            if ($at === strlen($text)) {
                return $members;
            }
            if (preg_match('/\G,[ \t]*(?=.)/A', $text, $m, 0, $at) !== 1) {
                return null;
            }
            $at += strlen($m[0]);
        }
    }

    /**
     * Returns a parameter that is a whole number of at least min, or null.
     *
     * @param array<string, string> $parameters
     */
    private static function whole(array $parameters, string $name, int $min): ?int
    {
        $text = $parameters[$name] ?? '';
        if (preg_match('/^-?\d{1,15}\z/', $text) !== 1 || (int) $text < $min) {
            return null;
        }

        return (int) $text;
    }
}
