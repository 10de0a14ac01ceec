<?php

declare(strict_types=1);

namespace Weir\Pacer\Symfony;

use Weir\Pacer\Call;
use Weir\Pacer\Pass;

/**
 * A request, over all its attempts.
 *
 * @internal
 */
final class Sending
{
    public readonly Call $call;
    public string $line = '';
    public int $attempt = 1;
    /** hrtime before which it is not sent. */
    public int $notBefore = 0;
    /** hrtime since which it waits; 0: it does not. */
    public int $since = 0;
    public string $notified = '';
    public ?Pass $pass = null;
    /** The same from the head of the answer to its end. */
    public ?Pass $answer = null;
    /** Where a body that is a resource began; null: it cannot be sent again. */
    private ?int $start = null;

    /**
     * @param array<string, mixed> $options
     * @param array<string, mixed> $defaults
     */
    public function __construct(
        public readonly string $method,
        public readonly string $url,
        public readonly array $options,
        private readonly array $defaults,
        /** Nanoseconds that it may still wait. */
        public int $left,
    ) {
        $body = $options['body'] ?? '';
        if (is_resource($body)) {
            $this->start = stream_get_meta_data($body)['seekable'] ? ftell($body) : null;
        }
        $this->call = $this->makeCall();
    }

    /** Seconds without any activity that end it. */
    public function timeout(): float
    {
        return (float) ($this->options['timeout'] ?? $this->defaults['timeout'] ?? ini_get('default_socket_timeout'));
    }

    /** Goes back to where the body began; false if that is not possible. */
    public function rewind(): bool
    {
        $body = $this->options['body'] ?? '';
        if (is_resource($body)) {
            return $this->start !== null && fseek($body, $this->start) === 0;
        }

        return is_string($body) || is_array($body) && !self::hasResource($body);
    }

    private static function hasResource(array $body): bool
    {
        $found = false;
        array_walk_recursive($body, static function ($value) use (&$found): void {
            $found = $found || is_resource($value) || is_object($value);
        });

        return $found;
    }

    /** Returns what a server can count the request by. */
    private function makeCall(): Call
    {
        $headers = [];
        foreach ([$this->defaults['headers'] ?? [], $this->options['headers'] ?? []] as $some) {
            $these = [];
            foreach ($some as $name => $values) {
                foreach (is_iterable($values) ? $values : [$values] as $value) {
                    if (is_int($name)) {
                        [$field, $value] = explode(':', (string) $value, 2) + [1 => ''];
                        $these[strtolower($field)][] = trim($value);
                    } else {
                        $these[strtolower($name)][] = (string) $value;
                    }
                }
            }
            $headers = $these + $headers;
        }
        $options = $this->options + $this->defaults;
        if (isset($options['auth_bearer'])) {
            $headers['authorization'] = ['Bearer '.$options['auth_bearer']];
        } elseif (isset($options['auth_basic'])) {
            $basic = $options['auth_basic'];
            $headers['authorization'] = ['Basic '.base64_encode(is_array($basic) ? implode(':', $basic) : $basic)];
        }
        $body = is_string($options['body'] ?? null) ? $options['body'] : null;
        if (isset($options['json'])) {
            $headers += ['content-type' => ['application/json']];
            $body = static fn (): string => json_encode($options['json']) ?: '';
        }
        $url = $this->url;
        if (isset($options['base_uri']) && !preg_match('~^[a-z][a-z0-9+.-]*://~i', $url)) {
            $base = is_array($options['base_uri']) ? implode('', $options['base_uri']) : $options['base_uri'];
            preg_match('~^([^:]+://[^/?#]*)([^?#]*/)?~', $base, $m);
            $url = str_starts_with($url, '/') ? ($m[1] ?? '').$url : ($m[1] ?? '').($m[2] ?? '/').$url;
        }
        if (isset($options['query']) && is_array($options['query']) && $options['query'] !== []) {
            $url = explode('#', $url, 2)[0];
            $url .= (str_contains($url, '?') ? '&' : '?').http_build_query($options['query']);
        }

        return new Call($this->method, $url, $headers, $body);
    }
}
