<?php

declare(strict_types=1);

namespace Weir\Pacer;

/**
 * Which requests share a budget: those of one limiter, host and credential.
 *
 *     new Routes([
 *         ['name' => 'search', 'routes' => ['GET /search*'],
 *             'windows' => ['30 per minute by token']],
 *     ])
 *
 * A route is a path with an optional method and an optional host before it, as in
 * GET api.example.com/search*, and an optional star at its end; the most specific one counts. The host
 * *.example.com is of all names that end so. A segment of the path may be a parameter, such as {tenant}. A window is
 * LIMIT [requests] per [N] UNIT by SOURCE[ or SOURCE…][+SOURCE…], or LIMIT per calendar day, week or month
 * [in ZONE] [from day N] by the same; the sources are session, token, agent, ip, host, header:NAME,
 * cookie:NAME, query:NAME, claim:NAME and, of a parameter, path:NAME. Limits and lengths may differ
 * from the server's, because responses override them. They matter if a limiter has several windows:
 * they show which window a response describes.
 *
 * cost, count and in_flight have the forms of a policy: a cost that the answer states is reserved
 * first, as in ['reserve' => 4000, 'from' => 'json:usage.total_tokens'].
 */
final class Routes
{
    /** The contract's table. */
    private const CONTRACT = [
        ['name' => 'widget-init', 'routes' => ['POST /api/v1/widget/init'],
            'windows' => ['1000 per minute by ip+agent', '30000 per hour by ip']],
        ['name' => 'widget-session',
            'routes' => ['POST /api/v1/widget/messages*', '/api/v1/widget/events*', '/api/v1/widget/conversations*'],
            'windows' => ['300 per minute by session or ip']],
        ['name' => 'widget-leads', 'routes' => ['POST /api/v1/widget/leads'], 'windows' => ['30 per minute by session or ip']],
        ['name' => 'wp-plugin', 'routes' => ['/v1/wp/*'], 'windows' => ['60 per minute by token or ip']],
        ['name' => 'widget-typing', 'routes' => ['POST /api/v1/widget/typing'], 'windows' => ['600 per minute by ip']],
        ['name' => 'widget-satisfaction', 'routes' => ['POST /api/v1/widget/satisfaction'], 'windows' => ['60 per minute by ip']],
        ['name' => 'widget-coupon', 'routes' => ['POST /api/v1/widget/coupon/apply'], 'windows' => ['120 per minute by ip']],
        ['name' => 'widget-other', 'routes' => ['/api/v1/widget/*'], 'windows' => ['6000 per minute by ip']],
    ];

    private const UNITS = ['second' => 1, 'minute' => 60, 'hour' => 3600, 'day' => 86400];

    /** The lengths of a calendar's longest spans, and the last day on which one may begin. */
    private const CALENDAR = ['day' => [86400, 1], 'week' => [7 * 86400, 7], 'month' => [31 * 86400, 31]];

    /** How a route covers what follows its path. */
    private const LITERAL = 0; // the path; and what follows it after / or . if nothing else covers that
    private const SEGMENT = 1; // path/*: everything below the path, and the path
    private const PREFIX = 2; // path*: everything that begins with the path

    /**
     * A table of the routes that begin at the same place: at the start of the path, or after one
     * parameter more than the table before. Lengths are those of the keys of its nodes, the longest
     * first. A node has the routes that begin with its key by kind and method, and the table of those
     * that go on with a parameter.
     *
     * @var array<string, array{nodes: array<string, array{kinds: array<int, array<string, array{Limiter, list<string>}>>, table?: array}>,
     *     lengths: list<int>}> by host: "api.example.com"; ".example.com" for all names that end so; "" for all
     */
    private array $tables = [];

    private const EMPTY = ['nodes' => [], 'lengths' => []];

    /**
     * @param list<array{name: string, routes: list<string>, windows?: list<string>,
     *     cost?: int|array{reserve?: int|array{at_most: int}, from?: string},
     *     count?: array<string, list<int|string>>, in_flight?: string}> $limiters
     *
     * @throws \InvalidArgumentException if a route, a window, a cost or in_flight has another form
     */
    public function __construct(array $limiters)
    {
        foreach ($limiters as $l) {
            $windows = array_map(self::window(...), $l['windows'] ?? []);
            $inFlight = isset($l['in_flight']) ? self::inFlight($l['in_flight']) : null;
            if (count($windows) > 4 || $windows === [] && $inFlight === null) {
                throw new \InvalidArgumentException("limiter {$l['name']} needs one to four windows, or in_flight");
            }
            foreach ($windows as &$window) {
                $window['settles'] = isset($l['count']) || isset($l['cost']['from']) && !$window['requests'];
                $window['later'] = str_starts_with($l['cost']['from'] ?? '', 'json:') && !$window['requests'];
            }
            unset($window);
            $limiter = new Limiter($l['name'], self::cost($l['name'], $l['cost'] ?? 1), $windows, $inFlight);
            foreach ($l['routes'] as $route) {
                $this->add($route, $limiter);
            }
        }
    }

    /** Returns the contract's routes. */
    public static function contract(): self
    {
        static $routes = null;

        return $routes ??= new self(self::CONTRACT);
    }

    /**
     * Returns the limiter that covers a request, or null. The path is decoded, in any spelling, and so
     * is the host, which may have a port.
     */
    public function match(string $method, string $path, string $host = ''): ?Limiter
    {
        return $this->find($method, $path, $host)[0] ?? null;
    }

    /**
     * Returns the limiter that covers a request, and the values of the parameters of its route by
     * name; null if none does.
     *
     * @return array{Limiter, array<string, string>}|null
     *
     * @internal
     */
    public function find(string $method, string $path, string $host = ''): ?array
    {
        $path = self::fold($path);
        foreach ($this->tablesOf($host) as $table) {
            $found = self::search($table, $method, $path, []);
            if ($found !== null) {
                [$limiter, $names, $values] = $found;

                return [$limiter, $names === [] ? [] : array_combine($names, $values)];
            }
        }

        return null;
    }

    /**
     * Returns the tables of a host: its own, those of the names that it ends in, the longest first, and
     * that of all hosts.
     */
    private function tablesOf(string $host): iterable
    {
        if (array_keys($this->tables) !== ['']) {
            $host = self::host($host);
            yield $this->tables[$host === '' ? '.' : $host] ?? self::EMPTY;
            for ($dot = strpos($host, '.'); $dot !== false; $dot = strpos($host, '.', $dot + 1)) {
                yield $this->tables[substr($host, $dot)] ?? self::EMPTY;
            }
        }
        yield $this->tables[''] ?? self::EMPTY;
    }

    /**
     * Returns the form in which hosts are compared: in lower case, without port and without a dot at
     * the end. A name in other letters is in ASCII, if the extension intl is there.
     */
    private static function host(string $host): string
    {
        $host = rtrim(preg_replace('/:\d*\z/', '', $host), '.');
        if (preg_match('/[^\x00-\x7F]/', $host) === 1 && function_exists('idn_to_ascii')) {
            $ascii = idn_to_ascii($host, IDNA_NONTRANSITIONAL_TO_ASCII, INTL_IDNA_VARIANT_UTS46);
            $host = $ascii === false ? $host : $ascii;
        }

        return strtolower($host);
    }

    /**
     * Returns what covers the rest of a path in a table. Values are those of the parameters before it.
     *
     * @param list<string> $values
     *
     * @return array{Limiter, list<string>, list<string>}|null
     */
    private static function search(array $table, string $method, string $rest, array $values): ?array
    {
        foreach ($table['lengths'] as $length) {
            $node = $length <= strlen($rest) ? $table['nodes'][substr($rest, 0, $length)] ?? null : null;
            if ($node === null) {
                continue;
            }
            $after = substr($rest, $length);
            if (isset($node['table']) && ($after[0] ?? '') === '/') {
                $end = strpos($after, '/', 1);
                $value = substr($after, 1, $end === false ? null : $end - 1);
                if ($end === false) { // what follows the last dot may be a format
                    $value = preg_replace('/(?<=.)\.[^.]*\z/s', '', $value);
                }
                $found = self::search($node['table'], $method, $end === false ? '' : substr($after, $end), [...$values, $value]);
                if ($found !== null) {
                    return $found;
                }
            }
            foreach (self::kinds($after) as $kind) {
                $found = $node['kinds'][$kind][$method] ?? null;
                if ($found === null && $method === 'HEAD') { // the same handler serves it
                    $found = $node['kinds'][$kind]['GET'] ?? null;
                }
                $found ??= $node['kinds'][$kind][''] ?? null;
                if ($found !== null) {
                    return [...$found, $values];
                }
            }
        }

        return null;
    }

    /**
     * Returns the kinds of routes that cover what follows their path, the most specific first.
     *
     * @return list<int>
     */
    private static function kinds(string $rest): array
    {
        if ($rest === '' || $rest[0] === '.') {
            return [self::LITERAL, self::SEGMENT, self::PREFIX];
        }

        return $rest[0] === '/' ? [self::SEGMENT, self::LITERAL, self::PREFIX] : [self::PREFIX];
    }

    private function add(string $route, Limiter $limiter): void
    {
        if (preg_match('~^\s*(?:([A-Z]+)\s+)?((?:\*\.)?(?:[^\s/*:@.]+(?:\.[^\s/*:@.]+)*\.?|\[[0-9A-Fa-f:.]+\]))?(/[^\s*?#%\\\\;]*)(\*?)\s*\z~', $route, $m) !== 1
            || $m[2] !== '' && $m[2] !== 'localhost' && strpbrk($m[2], '.:') === false) {
            throw new \InvalidArgumentException("route \"$route\": the form is [METHOD] [HOST]/path or [METHOD] [HOST]/path*, and a segment may be a {parameter}");
        }
        [, $method, $host, $path, $star] = $m;
        $host = $host === '' ? '' : (str_starts_with($host, '*') ? '.'.self::host(substr($host, 2)) : self::host($host));
        $names = self::parameters($route, $path, $star);
        $kind = match (true) {
            $star === '' => self::LITERAL,
            $path[-1] === '/' => self::SEGMENT,
            default => self::PREFIX,
        };
        $this->tables[$host] ??= self::EMPTY;
        $table = &$this->tables[$host];
        foreach (preg_split('~/\{[^}]*\}~', $path) as $i => $text) {
            if ($i > 0) {
                $node['table'] ??= self::EMPTY;
                $table = &$node['table'];
            }
            $text = self::fold($text);
            if (!isset($table['nodes'][$text])) {
                $table['nodes'][$text] = ['kinds' => []];
                $table['lengths'] = array_values(array_unique([...$table['lengths'], strlen($text)]));
                rsort($table['lengths']);
            }
            $node = &$table['nodes'][$text];
        }
        $node['kinds'][$kind][$method] ??= [$limiter, $names];
    }

    /**
     * Returns the names of the parameters of a path.
     *
     * @return list<string>
     */
    private static function parameters(string $route, string $path, string $star): array
    {
        $names = [];
        foreach (explode('/', $path) as $segment) {
            if (strpbrk($segment, '{}') === false) {
                continue;
            }
            if (preg_match('/^\{([a-z][a-z0-9_-]{0,63})\}\z/', $segment, $m) !== 1) {
                throw new \InvalidArgumentException("route \"$route\": a parameter is a whole segment in braces, with lower-case letters, digits, dashes and underscores: /t/{tenant}/items");
            }
            if (in_array($m[1], $names, true)) {
                throw new \InvalidArgumentException("route \"$route\": parameter {{$m[1]}} occurs twice");
            }
            $names[] = $m[1];
        }
        if ($star !== '' && $path[-1] === '}') {
            throw new \InvalidArgumentException("route \"$route\": a star cannot follow a parameter: $path/* covers the segment and everything below it");
        }

        return $names;
    }

    /** Returns the units that a request is charged before it is served. */
    private static function cost(string $name, mixed $cost): int
    {
        $units = is_array($cost) ? $cost['reserve'] ?? 1 : $cost;
        $units = is_array($units) ? $units['at_most'] ?? null : $units;
        if (!is_int($units)) {
            throw new \InvalidArgumentException("limiter $name: its cost has to be a number, or [reserve => a number, from => …]; a reserve that requests state is [at_most => a number, …]");
        }

        return max($units, 1);
    }

    /** @return array{limit: int, by: string, key: list<list<string>>} */
    private static function inFlight(string $text): array
    {
        if (preg_match('/^(\d{1,15}) by (\S.*)\z/', $text, $m) !== 1 || (int) $m[1] < 1) {
            throw new \InvalidArgumentException("in_flight \"$text\": the form is LIMIT by SOURCE, as in 10 by token or ip");
        }

        return ['limit' => (int) $m[1]] + self::key("in_flight \"$text\"", $m[2]);
    }

    /** @return array{limit: int, seconds: int, span: string, requests: bool, by: string, key: list<list<string>>} */
    private static function window(string $text): array
    {
        $form = '/^(\d{1,15})(?<requests> requests?)? per (?:calendar (?<calendar>day|week|month)(?<place>(?: in \S+)?(?: from day \d{1,2})?)'
            .'|(?:(?<n>\d{1,8}) )?(?<unit>second|minute|hour|day)s?) by (?<by>\S.*)\z/';
        if (preg_match($form, $text, $m) !== 1 || (int) $m[1] < 1) {
            throw new \InvalidArgumentException("window \"$text\": the form is LIMIT [requests] per [N] UNIT by SOURCE, as in 60 per minute by token or ip, or LIMIT [requests] per calendar UNIT [in ZONE] [from day N] by SOURCE");
        }
        [$seconds, $span] = $m['calendar'] !== '' ? self::calendar($text, $m['calendar'], $m['place']) : self::span($text, $m['n'], $m['unit']);

        return ['limit' => (int) $m[1], 'seconds' => $seconds, 'span' => $span, 'requests' => $m['requests'] !== '']
            + self::key("window \"$text\"", $m['by']);
    }

    /** @return array{by: string, key: list<list<string>>} */
    private static function key(string $of, string $by): array
    {
        $key = [];
        foreach (explode('+', $by) as $part) {
            $sources = preg_split('/\s+or\s+/', trim($part));
            foreach ($sources as $source) {
                if (preg_match('/^(?:[a-z][a-z0-9-]*|header:[A-Za-z0-9-]+|(?:path|cookie|query|claim):\S+)\z/', $source) !== 1) {
                    throw new \InvalidArgumentException("$of: \"$source\" is no key source: session, token, agent, ip, host, header:NAME, cookie:NAME, query:NAME, claim:NAME and path:NAME are");
                }
            }
            $key[] = $sources;
        }
        $by = implode('+', array_map(static fn (array $part): string => implode(' or ', $part), $key));

        return ['by' => $by, 'key' => $key];
    }

    /** @return array{int, string} the length in seconds, and the text that distinguishes it */
    private static function span(string $text, string $n, string $unit): array
    {
        $seconds = (int) ($n === '' ? 1 : $n) * self::UNITS[$unit];
        if ($seconds < 1 || $seconds > 31 * 24 * 3600) {
            throw new \InvalidArgumentException("window \"$text\": its length has to be from a second to 31 days");
        }

        return [$seconds, (string) $seconds];
    }

    /** @return array{int, string} the longest length in seconds, and the text that distinguishes it */
    private static function calendar(string $text, string $unit, string $place): array
    {
        [$seconds, $last] = self::CALENDAR[$unit];
        preg_match('/^(?: in (\S+))?(?: from day (\d+))?\z/', $place, $m);
        $day = (int) ($m[2] ?? '1');
        if ($day < 1 || $day > $last) {
            throw new \InvalidArgumentException("window \"$text\": a calendar $unit begins on day 1 to $last");
        }
        $zone = $m[1] ?? '';
        if ($zone !== '' && !in_array($zone, \DateTimeZone::listIdentifiers(\DateTimeZone::ALL_WITH_BC), true)) {
            throw new \InvalidArgumentException("window \"$text\": time zone \"$zone\" is unknown: Europe/Berlin is one");
        }

        return [$seconds, "calendar $unit $zone $day"];
    }

    /**
     * Returns the form of a path that chooses the limiter. Letters are in lower case.
     * ";parameters", empty segments and trailing slashes are dropped. A backslash is a slash. Dot segments are
     * resolved. So every spelling that a server may accept is found.
     */
    public static function fold(string $path): string
    {
        $segments = [];
        foreach (explode('/', strtr($path, '\\', '/')) as $segment) {
            $segment = explode(';', $segment, 2)[0];
            if ($segment === '..') {
                array_pop($segments);
            } elseif ($segment !== '' && $segment !== '.') {
                $segments[] = $segment;
            }
        }

        return $segments === [] ? '' : self::lower('/'.implode('/', $segments));
    }

    /**
     * Returns one representative of the letters that some case-insensitive comparison treats as
     * equal. Letters outside of ASCII need the extension mbstring, and stay as they are without it.
     */
    private static function lower(string $text): string
    {
        if (preg_match('/[^\x00-\x7F]/', $text) !== 1 || !function_exists('mb_convert_case') || preg_match('//u', $text) !== 1) {
            return strtolower($text);
        }
        $text = strtr($text, ["\u{130}" => 'i']);
        $text = mb_convert_case($text, MB_CASE_FOLD, 'UTF-8');

        return mb_convert_case(mb_convert_case($text, MB_CASE_UPPER_SIMPLE, 'UTF-8'), MB_CASE_LOWER_SIMPLE, 'UTF-8');
    }
}
