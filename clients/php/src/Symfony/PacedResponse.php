<?php

declare(strict_types=1);

namespace Weir\Pacer\Symfony;

use Symfony\Component\HttpClient\Chunk\ErrorChunk;
use Symfony\Component\HttpClient\Exception\TimeoutException;
use Symfony\Component\HttpClient\Exception\TransportException;
use Symfony\Component\HttpClient\Response\StreamableInterface;
use Symfony\Component\HttpClient\Response\StreamWrapper;
use Symfony\Contracts\HttpClient\ChunkInterface;
use Symfony\Contracts\HttpClient\Exception\HttpExceptionInterface;
use Symfony\Contracts\HttpClient\Exception\TransportExceptionInterface;
use Symfony\Contracts\HttpClient\ResponseInterface;

/**
 * The response to a request that may have to wait first.
 *
 * @internal
 */
final class PacedResponse implements ResponseInterface, StreamableInterface
{
    /** The response of the client that sends; null: the request waits. */
    public ?ResponseInterface $inner = null;
    /** Why there is no response. */
    public ?TransportExceptionInterface $failure = null;
    /** The first chunk, if it has come and nobody has seen it. */
    public ?ChunkInterface $held = null;
    /** Whether anybody has looked at it: if not, its destructor does. */
    public bool $touched = false;
    private bool $canceled = false;
    private readonly float $began;

    public function __construct(public readonly PacedHttpClient $client, public readonly Sending $sending)
    {
        $this->began = microtime(true);
    }

    public function getStatusCode(): int
    {
        return $this->initialized()->getStatusCode();
    }

    public function getHeaders(bool $throw = true): array
    {
        return $this->initialized()->getHeaders($throw);
    }

    public function getContent(bool $throw = true): string
    {
        $inner = $this->initialized();
        $this->held = null;

        return $this->all(static fn (): string => $inner->getContent($throw));
    }

    public function toArray(bool $throw = true): array
    {
        $inner = $this->initialized();
        $this->held = null;

        return $this->all(static fn (): array => $inner->toArray($throw));
    }

    public function toStream(bool $throw = true)
    {
        $inner = $this->initialized();
        $this->held = null;

        if ($this->sending->answer?->underWay) { // its end is seen in chunks of this client only
            $inner->getHeaders($throw);

            return StreamWrapper::createResource($this, $this->client);
        }

        return $inner instanceof StreamableInterface ? $inner->toStream($throw) : StreamWrapper::createResource($inner, $this->client->inner());
    }

    /** Returns what reads the whole answer, which has ended then. */
    private function all(\Closure $read): mixed
    {
        try {
            $all = $read();
        } catch (HttpExceptionInterface $e) {
            throw $e; // a bad status: the answer was not read
        } catch (\Throwable $e) {
            $this->client->ended($this);
            throw $e;
        }
        $this->client->ended($this);

        return $all;
    }

    public function cancel(): void
    {
        $this->touched = $this->canceled = true;
        $this->held = null;
        $this->client->forget($this);
        $this->sending->pass = null;
        $this->inner?->cancel();
    }

    public function getInfo(?string $type = null): mixed
    {
        if ($this->inner !== null) {
            return $this->inner->getInfo($type);
        }
        $info = [
            'canceled' => $this->canceled,
            'error' => $this->canceled ? 'Response has been canceled.' : $this->failure?->getMessage(),
            'http_code' => 0,
            'http_method' => $this->sending->method,
            'redirect_count' => 0,
            'redirect_url' => null,
            'response_headers' => [],
            'start_time' => $this->began,
            'url' => $this->sending->url,
            'user_data' => $this->sending->options['user_data'] ?? null,
        ];

        return $type === null ? $info : $info[$type] ?? null;
    }

    /** Waits until the headers have come, and returns the response that has them. */
    private function initialized(): ResponseInterface
    {
        $this->touched = true;
        if ($this->failure === null && $this->held === null && ($this->inner === null || $this->sending->pass !== null)) {
            if ($this->canceled) {
                throw new TransportException('Response has been canceled.');
            }
            foreach ($this->client->stream([$this]) as $chunk) {
                if ($this->failure !== null && $chunk instanceof ErrorChunk) {
                    $chunk->didThrow(true);
                    break;
                }
                if ($chunk->isTimeout()) {
                    throw new TimeoutException((string) $chunk->getError());
                }
                if ($chunk->isFirst()) {
                    $this->held = $chunk;
                    break;
                }
            }
        }
        if ($this->failure !== null) {
            throw $this->failure;
        }

        return $this->inner;
    }

    /** A request whose response nobody reads is sent all the same, and a bad status is an error. */
    public function __destruct()
    {
        if (!$this->touched) {
            $this->initialized()->getHeaders(true);
        }
    }
}
