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
        if ($source === 'session' || $source === 'token') {
            $bearer = self::bearer($call);
            $isToken = $bearer !== null && str_starts_with($bearer, self::TOKEN_PREFIX);

            return $bearer !== null && $isToken === ($source === 'token') ? $bearer : null;
        }
        if (str_starts_with($source, 'header:')) {
            $values = $call->header(substr($source, strlen('header:')));

            $value = count($values) === 1 ? trim($values[0], " \t") : '';

            return $value !== '' ? $value : null;
        }

        return null;
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
        foreach (explode('&', $call->query) as $pair) {
            [$name, $value] = explode('=', $pair, 2) + [1 => ''];
            if (urldecode($name) === 'agent_id') {
                if ($value !== '') {
                    return urldecode($value);
                }
                break;
            }
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
        $parts = explode('.', $token);
        $payload = count($parts) === 3 ? base64_decode(strtr($parts[1], '-_', '+/'), true) : false;
        $claims = $payload === false ? null : json_decode($payload, true, 32);
        if (!is_array($claims)) {
            return '';
        }
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
