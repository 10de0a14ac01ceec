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
 * A route is a path with an optional method before it and an optional star at its end; the most
 * specific one counts. A route with a parameter such as {tenant} is rejected: end it before that,
 * with a star. A window is LIMIT per [N] UNIT by SOURCE[ or SOURCE…][+SOURCE…]; the sources
 * are session, token, agent, ip and header:NAME. Limits and lengths may differ from the server's,
 * because responses override them. They matter if a limiter has several windows: they show which
 * window a response describes.
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

    /** How a route covers what follows its path. */
    private const LITERAL = 0; // the path; and what follows it after / or . if nothing else covers that
    private const SEGMENT = 1; // path/*: everything below the path, and the path
    private const PREFIX = 2; // path*: everything that begins with the path

    /** @var array<string, array<int, array<string, Limiter>>> by folded path, kind and method */
    private array $nodes = [];

    /** @var list<int> lengths of the paths, the longest first */
    private array $lengths = [];

    /**
     * @param list<array{name: string, routes: list<string>, windows: list<string>,
     *     cost?: int}> $limiters
     *
     * @throws \InvalidArgumentException if a route or a window has another form
     */
    public function __construct(array $limiters)
    {
        foreach ($limiters as $l) {
            if (count($l['windows']) < 1 || count($l['windows']) > 4) {
                throw new \InvalidArgumentException("limiter {$l['name']} needs one to four windows");
            }
            $limiter = new Limiter($l['name'], max($l['cost'] ?? 1, 1), array_map(self::window(...), $l['windows']));
            foreach ($l['routes'] as $route) {
                $this->add($route, $limiter);
            }
        }
        $lengths = array_unique(array_map('strlen', array_map('strval', array_keys($this->nodes))));
        rsort($lengths);
        $this->lengths = $lengths;
    }

    /** Returns the contract's routes. */
    public static function contract(): self
    {
        static $routes = null;

        return $routes ??= new self(self::CONTRACT);
    }

    /** Returns the limiter that covers a request, or null. The path is decoded, in any spelling. */
    public function match(string $method, string $path): ?Limiter
    {
        $path = self::fold($path);
        foreach ($this->lengths as $length) {
            $node = $length <= strlen($path) ? $this->nodes[substr($path, 0, $length)] ?? null : null;
            if ($node === null) {
                continue;
            }
            foreach (self::kinds(substr($path, $length)) as $kind) {
                $found = $node[$kind][$method] ?? null;
                if ($found === null && $method === 'HEAD') { // the same handler serves it
                    $found = $node[$kind]['GET'] ?? null;
                }
                $found ??= $node[$kind][''] ?? null;
                if ($found !== null) {
                    return $found;
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
        if (preg_match('~^\s*(?:([A-Z]+)\s+)?(/[^\s*?#%\\\\;{}]*)(\*?)\s*\z~', $route, $m) !== 1) {
            throw new \InvalidArgumentException("route \"$route\": the form is [METHOD] /path or [METHOD] /path*, without {parameters}");
        }
        [, $method, $path, $star] = $m;
        $kind = match (true) {
            $star === '' => self::LITERAL,
            $path[-1] === '/' => self::SEGMENT,
            default => self::PREFIX,
        };
        $this->nodes[self::fold($path)][$kind][$method] ??= $limiter;
    }

    /** @return array{limit: int, seconds: int, by: string, key: list<list<string>>} */
    private static function window(string $text): array
    {
        $form = '/^(\d{1,15}) per (?:(\d{1,8}) )?(second|minute|hour|day)s? by (\S.*)\z/';
        if (preg_match($form, $text, $m) !== 1 || (int) $m[1] < 1) {
            throw new \InvalidArgumentException("window \"$text\": the form is LIMIT per [N] UNIT by SOURCE, as in 60 per minute by token or ip");
        }
        $seconds = (int) ($m[2] === '' ? 1 : $m[2]) * self::UNITS[$m[3]];
        if ($seconds < 1 || $seconds > 31 * 24 * 3600) {
            throw new \InvalidArgumentException("window \"$text\": its length has to be from a second to 31 days");
        }
        $key = [];
        foreach (explode('+', $m[4]) as $part) {
            $sources = preg_split('/\s+or\s+/', trim($part));
            foreach ($sources as $source) {
                if (preg_match('/^(?:[a-z][a-z0-9-]*|header:[A-Za-z0-9-]+)\z/', $source) !== 1) {
                    throw new \InvalidArgumentException("window \"$text\": \"$source\" is no key source: session, token, agent, ip and header:NAME are");
                }
            }
            $key[] = $sources;
        }
        $by = implode('+', array_map(static fn (array $part): string => implode(' or ', $part), $key));

        return ['limit' => (int) $m[1], 'seconds' => $seconds, 'by' => $by, 'key' => $key];
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
