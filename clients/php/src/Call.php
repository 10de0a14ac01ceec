<?php

declare(strict_types=1);

namespace Weir\Pacer;

/** What a server can count a request by: its method, URL, fields and body. */
final class Call
{
    public readonly string $scheme;
    /** Host and port in a canonical form: lower case, without the default port. */
    public readonly string $host;
    /** Decoded. */
    public readonly string $path;
    public readonly string $query;

    /** @var array<string, list<string>> */
    private array $headers;

    /**
     * @param iterable<string, string|list<string>> $headers in any letter case
     * @param string|\Closure(): string|null        $body    a function is called only if a route
     *                                                       counts by what the body has (agent)
     */
    public function __construct(
        public readonly string $method,
        string $url,
        iterable $headers = [],
        private string|\Closure|null $body = null,
    ) {
        $parts = parse_url($url) ?: [];
        $this->scheme = strtolower($parts['scheme'] ?? '');
        $host = strtolower($parts['host'] ?? '');
        $port = $parts['port'] ?? null;
        if ($port !== null && $port !== (['http' => 80, 'https' => 443][$this->scheme] ?? null)) {
            $host .= ':'.$port;
        }
        $this->host = $host;
        $this->path = rawurldecode($parts['path'] ?? '/');
        $this->query = $parts['query'] ?? '';
        $this->headers = Fields::lower($headers);
    }

    /**
     * Returns the values of a field.
     *
     * @return list<string>
     */
    public function header(string $name): array
    {
        return $this->headers[strtolower($name)] ?? [];
    }

    public function body(): string
    {
        if ($this->body instanceof \Closure) {
            $this->body = ($this->body)();
        }

        return $this->body ?? '';
    }
}
