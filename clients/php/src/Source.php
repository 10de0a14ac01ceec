<?php

declare(strict_types=1);

namespace Weir\Pacer;

/**
 * Finds the value that the contract's server will find in a request for a key source, as far as a
 * caller can know.
 *
 * @internal
 */
final class Source
{
    private const TOKEN_PREFIX = 'wpt_';

    /** Returns the value of a source; null if the request has none. */
    public static function value(Call $call, string $source): ?string
    {
        if ($source === 'agent') {
            return self::agent($call);
        }
        $bearer = self::bearer($call);
        if ($source === 'session') {
            return $bearer !== null && !str_starts_with($bearer, self::TOKEN_PREFIX) ? $bearer : null;
        }
        if ($source === 'token') {
            $isJWT = $bearer !== null && substr_count($bearer, '.') === 2;

            return $bearer !== null && !$isJWT ? $bearer : self::value($call, 'header:X-Api-Key');
        }
        [$kind, $name] = explode(':', $source, 2) + [1 => ''];
        $value = match ($kind) {
            'header' => count($call->header($name)) === 1 ? trim($call->header($name)[0], " \t") : '',
            'cookie' => self::only(self::cookies($call, $name)),
            'query' => self::only(self::parameters($call, $name)),
            'claim' => self::claim($bearer ?? '', $name),
            'host' => rtrim(preg_replace('/:\d+\z/', '', $call->host), '.'),
            default => '',
        };

        return $value !== '' ? $value : null;
    }

    /**
     * Returns the value that all have; an empty string if they differ.
     *
     * @param list<string> $all
     */
    private static function only(array $all): string
    {
        return count(array_unique($all)) === 1 ? $all[0] : '';
    }

    /** @return list<string> */
    private static function cookies(Call $call, string $name): array
    {
        $all = [];
        foreach (explode(';', implode(';', $call->header('Cookie'))) as $pair) {
            [$before, $value] = explode('=', trim($pair), 2) + [1 => ''];
            if ($before === $name) {
                $all[] = trim($value, '"');
            }
        }

        return $all;
    }

    /** @return list<string> */
    private static function parameters(Call $call, string $name): array
    {
        $all = [];
        foreach (explode('&', $call->query) as $pair) {
            [$before, $value] = explode('=', $pair, 2) + [1 => ''];
            if (urldecode($before) === $name) {
                $all[] = urldecode($value);
            }
        }

        return $all;
    }

    /** Returns the issuer and the value of a JWT's claim; an empty string if no value of it counts. */
    private static function claim(string $token, string $name): string
    {
        $claims = self::claims($token);
        $value = self::findClaim($claims, $name);
        $counts = is_string($value) ? $value !== '' : is_int($value) || is_float($value) && floor($value) === $value;
        if (!$counts || !is_string($value) && abs($value) >= 2 ** 53) {
            return '';
        }

        return (is_string($claims['iss'] ?? '') ? $claims['iss'] ?? '' : '').' '.(is_float($value) ? (int) $value : $value);
    }

    /** Returns the claim of exactly that name, else the one that its dots lead to through objects. */
    private static function findClaim(array $in, string $name): mixed
    {
        if (array_key_exists($name, $in)) {
            return $in[$name];
        }
        for ($i = strpos($name, '.'); $i !== false; $i = strpos($name, '.', $i + 1)) {
            $inner = $in[substr($name, 0, $i)] ?? null;
            $found = is_array($inner) ? self::findClaim($inner, substr($name, $i + 1)) : null;
            if ($found !== null) {
                return $found;
            }
        }

        return null;
    }

    /** Returns the claims of a JWT, which are not verified. */
    private static function claims(string $token): array
    {
        $parts = explode('.', $token);
        $payload = count($parts) === 3 ? base64_decode(strtr($parts[1], '-_', '+/'), true) : false;
        $claims = $payload === false ? null : json_decode($payload, true, 32);

        return is_array($claims) ? $claims : [];
    }

    private static function bearer(Call $call): ?string
    {
        $values = $call->header('Authorization');
        if (count($values) !== 1 || strlen($values[0]) <= 7 || strcasecmp(substr($values[0], 0, 7), 'bearer ') !== 0) {
            return null;
        }

        return ltrim(substr($values[0], 7), ' ');
    }

    /** Returns the id of the assistant that a request is for. */
    private static function agent(Call $call): string
    {
        $id = $call->header('X-Agent-Id')[0] ?? '';
        if ($id !== '') {
            return $id;
        }
        $id = self::parameters($call, 'agent_id')[0] ?? '';
        if ($id !== '') {
            return $id;
        }
        if (str_starts_with($call->header('Content-Type')[0] ?? '', 'application/json')) {
            $body = $call->body();
            $fields = strlen($body) <= 16 << 10 ? json_decode($body, true, 32) : null;
            if (is_array($fields) && is_string($fields['agent_id'] ?? null) && $fields['agent_id'] !== '') {
                return $fields['agent_id'];
            }
        }

        return $call->header('User-Agent')[0] ?? '';
    }

    /**
     * Returns what the server counts by for a value, the id of an API token, the session of a JWT,
     * else the value itself; and the same for people: a short hash, unless it is public. The claims
     * of a token are not verified; the token is the caller's own.
     *
     * @return array{string, string}
     */
    public static function subject(string $source, string $value): array
    {
        if ($source === 'token' && str_starts_with($value, self::TOKEN_PREFIX)) {
            $rest = substr($value, strlen(self::TOKEN_PREFIX));
            $end = strpos($rest, '_');
            if ($end !== false && $end <= 32) {
                $id = substr($rest, 0, $end);

                return [$id, "token $id"];
            }
        } elseif ($source === 'session') {
            $id = self::session($value);
            if ($id !== '') {
                return [$id, 'session '.self::hashed($id)];
            }
        } elseif ($source === 'agent' && strlen($value) <= 64) {
            return [$value, "agent $value"];
        }

        return [$value, $source.' '.self::hashed($value)];
    }

    /** Returns the name of a JWT's session, or an empty string. */
    private static function session(string $token): string
    {
        $claims = self::claims($token);
        $texts = [];
        foreach (['iss', 'sid', 'jti'] as $name) {
            $texts[$name] = $claims[$name] ?? '';
            if (!is_string($texts[$name])) {
                return '';
            }
        }
        foreach (['sid', 'jti'] as $name) {
            if ($texts[$name] !== '') {
                return "$name {$texts['iss']} {$texts[$name]}";
            }
        }

        return '';
    }

    /** Returns a short hash of a possible secret. */
    public static function hashed(string $value): string
    {
        return substr(hash('sha256', $value), 0, 8);
    }
}
