<?php

declare(strict_types=1);

namespace Weir\Pacer\Symfony;

use Symfony\Component\HttpClient\Chunk\ErrorChunk;
use Symfony\Component\HttpClient\Response\ResponseStream;
use Symfony\Contracts\HttpClient\ChunkInterface;
use Symfony\Contracts\HttpClient\Exception\TransportExceptionInterface;
use Symfony\Contracts\HttpClient\HttpClientInterface;
use Symfony\Contracts\HttpClient\ResponseInterface;
use Symfony\Contracts\HttpClient\ResponseStreamInterface;
use Symfony\Contracts\Service\ResetInterface;
use Weir\Pacer\Pacer;
use Weir\Pacer\Pass;
use Weir\Pacer\Time;
use Weir\Pacer\Turn;
use Weir\Pacer\Wait;

/**
 * A Symfony HttpClient that sends a request when there is budget for it, and sends it again after a
 * 429.
 *
 * Requests are asynchronous as everywhere in Symfony: request() returns at once. A request without
 * budget is queued. It starts while any response of this client is waited for, so those in flight
 * go on meanwhile. Put this client outside of others that add nothing to the credentials: it sees
 * the options of request() and of withOptions().
 */
final class PacedHttpClient implements HttpClientInterface, ResetInterface
{
    /** Pauses between two looks at a view that other processes change, in seconds. */
    private const FIRST_PAUSE = 0.01;
    private const LAST_PAUSE = 0.2;

    /** @var array<string, mixed> */
    private array $defaults = [];
    private Queues $queues;

    /**
     * @param float                  $maxWait seconds that all waits of one request may take
     *                                        together. 0 never waits, which is right in a page view
     * @param int                    $retries how often a request is sent again after a 429; then
     *                                        the 429 is returned
     * @param ?\Closure(Wait): void  $onWait  is called before a request begins to wait
     * @param float                  $jitter  seconds that are added to a wait at most
     */
    public function __construct(
        private HttpClientInterface $client,
        private readonly Pacer $pacer,
        private readonly float $maxWait,
        private readonly int $retries = 10,
        private readonly ?\Closure $onWait = null,
        private readonly float $jitter = 0.1,
        private readonly Time $time = new Time(),
    ) {
        $this->queues = new Queues();
    }

    /** @throws WaitException if the request has to wait and maxWait is 0 */
    public function request(string $method, string $url, array $options = []): ResponseInterface
    {
        $r = new PacedResponse($this, new Sending($method, $url, $options, $this->defaults, Turn::nanos($this->maxWait)));
        $this->queues->add($this->pacer->queue($r->sending->call), $r);
        try {
            $this->advance($r);
        } catch (WaitException $e) {
            $r->cancel();
            throw $e;
        }

        return $r;
    }

    public function stream($responses, ?float $timeout = null): ResponseStreamInterface
    {
        return new ResponseStream($this->chunks($responses instanceof ResponseInterface ? [$responses] : $responses, $timeout));
    }

    public function withOptions(array $options): static
    {
        $clone = clone $this;
        $clone->client = $this->client->withOptions($options);
        $clone->defaults = ['headers' => array_merge((array) ($this->defaults['headers'] ?? []), (array) ($options['headers'] ?? []))]
            + $options + $this->defaults;

        return $clone;
    }

    public function reset(): void
    {
        if ($this->client instanceof ResetInterface) {
            $this->client->reset();
        }
    }

    /** @internal the client that sends */
    public function inner(): HttpClientInterface
    {
        return $this->client;
    }

    /** @internal a response that will not be read */
    public function forget(PacedResponse $r): void
    {
        $this->queues->remove($r);
        if ($r->sending->pass !== null) {
            $this->pacer->lost($r->sending->pass);
        }
        $this->ended($r);
    }

    /** @internal a response that has been read to its end */
    public function ended(PacedResponse $r): void
    {
        if ($r->sending->answer !== null) {
            $this->pacer->ended($r->sending->answer);
            $r->sending->answer = null;
        }
    }

    /**
     * Yields the chunks of responses as they come.
     *
     * @param iterable<PacedResponse> $responses
     */
    private function chunks(iterable $responses, ?float $timeout): \Generator
    {
        $open = [];
        foreach ($responses as $r) {
            if (!$r instanceof PacedResponse) {
                throw new \TypeError(sprintf('"%s::stream()" expects responses of its own, and got a "%s".', self::class, get_debug_type($r)));
            }
            $open[spl_object_id($r)] = $r;
        }
        $active = $this->seconds();
        $pause = self::FIRST_PAUSE;
        while ($open !== []) {
            $until = INF; // seconds until a queued request may start
            $inners = [];
            foreach ($open as $id => $r) {
                if ($r->inner === null && $r->failure === null) {
                    try {
                        $until = min($until, $this->advance($r));
                    } catch (WaitException $e) {
                        $r->failure = $e;
                    }
                }
                $r->touched = true;
                if ($r->failure !== null) {
                    unset($open[$id]);
                    yield $r => new ErrorChunk(0, $r->failure);
                } elseif ($r->held !== null) {
                    [$chunk, $r->held] = [$r->held, null];
                    $active = $this->seconds();
                    yield $r => $chunk;
                }
                if (isset($open[$id]) && $r->inner !== null) {
                    $inners[$id] = $r->inner;
                }
            }
            if ($open === []) {
                return;
            }
            $slice = $this->pacer->isShared() ? min($until, $pause) : $until;
            $left = $timeout === null ? INF : max($active + $timeout - $this->seconds(), 0);
            if ($inners === []) {
                if ($left <= 0) {
                    foreach ($open as $r) {
                        yield $r => new ErrorChunk(0, sprintf('Idle timeout reached for "%s".', $r->getInfo('url')));
                    }

                    return;
                }
                $this->pause(min($slice, $left));
                $pause = min(2 * $pause, self::LAST_PAUSE);
                continue;
            }
            $progress = false;
            foreach ($this->client->stream($inners, $slice === INF ? $timeout : min($slice, $left)) as $inner => $chunk) {
                $id = array_search($inner, $inners, true);
                $r = $open[$id];
                try {
                    if ($chunk->isTimeout()) {
                        $idle = $this->seconds() - $active;
                        if ($slice === INF || $idle >= ($timeout ?? $r->sending->timeout())) {
                            yield $r => new ErrorChunk($chunk->getOffset(), (string) $chunk->getError());
                            if ($timeout !== null) {
                                unset($open[$id], $inners[$id]);
                            }
                        }
                        continue;
                    }
                    $progress = true;
                    $active = $this->seconds();
                    $first = $chunk->isFirst();
                    if ($first && !$this->answered($r)) {
                        break; // it will be sent again
                    }
                    $last = $chunk->isLast();
                } catch (TransportExceptionInterface $e) {
                    $this->failed($r);
                    $chunk = new ErrorChunk($chunk->getOffset(), $e);
                    [$first, $last] = [false, true];
                }
                if ($last) {
                    unset($open[$id]);
                    $this->ended($r);
                }
                yield $r => $chunk;
                if (($first || $last) && $until !== INF) {
                    break; // what waits may start now
                }
            }
            $pause = $progress ? self::FIRST_PAUSE : min(2 * $pause, self::LAST_PAUSE);
        }
    }

    /**
     * Starts the queued requests up to this one, in order, as far as they may start. It returns the
     * seconds after which to ask again.
     */
    private function advance(PacedResponse $wanted): float
    {
        $queue = $this->queues->of($wanted);
        foreach ($queue as $i => $r) {
            $until = $this->tryStart($r, $r === $wanted, count($queue) - $i - 1);
            if ($r === $wanted) {
                return $until;
            }
            if ($r->inner === null) { // so those behind it wait too
                $s = $wanted->sending;
                $s->since = $s->since ?: $this->time->now();
                $this->checkLeft($wanted, $until);

                return $until;
            }
        }

        return INF;
    }

    /** @throws WaitException if a request that waits behind others has no time left */
    private function checkLeft(PacedResponse $r, float $until): void
    {
        $s = $r->sending;
        if ($s->left - ($this->time->now() - $s->since) <= 0) {
            $this->queues->remove($r);
            $nanos = (int) ($until * 1e9);
            $wait = $this->pacer->budget($s->call)->wait
                ?? new Wait($s->call->host, '', Wait::SPENT, $nanos, $nanos, $nanos, microtime(true));
            throw new WaitException($wait, $this->maxWait);
        }
    }

    /** Starts a request, or returns the seconds after which to ask again. */
    private function tryStart(PacedResponse $r, bool $wanted, int $waiting): float
    {
        $s = $r->sending;
        $now = $this->time->now();
        $left = $s->left - ($s->since > 0 ? $now - $s->since : 0);
        if ($s->notBefore > $now) {
            return ($s->notBefore - $now) / 1e9;
        }
        $this->pacer->waiting($s->call, $waiting);
        $result = $this->pacer->admit($s->call);
        if ($result instanceof Pass) {
            $s->left = $left;
            $s->since = $s->notBefore = 0;
            $s->pass = $result;
            $this->queues->remove($r);
            try {
                $r->inner = $r->client->client->request($s->method, $s->url, $s->options);
            } catch (\Throwable $e) {
                $this->pacer->unsent($result);
                throw $e;
            }
            $this->queues->flying($r);

            return INF;
        }
        $this->pacer->waiting($s->call, $waiting + 1);
        if ($wanted && ($left <= 0 || $result->least > $left)) {
            $this->queues->remove($r);
            throw new WaitException($result, $this->maxWait);
        }
        if ($s->since === 0) {
            $s->since = $now;
        }
        if ($s->notified !== $result->reason && $this->onWait !== null) {
            $s->notified = $result->reason;
            ($this->onWait)($result);
        }
        $again = min($result->again, max($left, 0));
        if ($result->reason === Wait::SPENT && !$this->pacer->isChanging($s->call)) {
            $again = min($again + random_int(0, Turn::nanos($this->jitter)), max($left, $result->again));
            $s->notBefore = $now + $again;
        }

        return $again / 1e9;
    }

    /** Handles the fields of a response. False: it is a 429, and the request is queued again. */
    private function answered(PacedResponse $r): bool
    {
        $s = $r->sending;
        $inner = $r->inner;
        $pass = $s->pass;
        $this->queues->landed($r);
        if ($pass === null) {
            return true;
        }
        $s->pass = null;
        [$status, $headers, $redirected] = self::firstHop($inner);
        $wait = $this->pacer->began($pass, $status, $headers);
        $s->answer = $pass;
        if ($wait === null || $redirected || $s->attempt > $this->retries || !$s->rewind()) {
            return true;
        }
        $s->attempt++;
        $s->answer = null;
        $inner->cancel();
        $r->inner = null;
        $now = $this->time->now();
        if ($wait->again > $s->left) {
            $r->failure = new WaitException($wait, $this->maxWait);

            return false;
        }
        $s->since = $now;
        $s->notBefore = $now + min($wait->again + random_int(0, Turn::nanos($this->jitter)), $s->left);
        $s->notified = $wait->reason;
        if ($this->onWait !== null) {
            ($this->onWait)($wait);
        }
        $this->queues->add($this->pacer->queue($s->call), $r, true);

        return false;
    }

    /**
     * Returns the status and the fields of the first answer: Symfony follows redirects itself, and
     * another host's fields are about another budget.
     *
     * @return array{int, array<string, list<string>>, bool}
     */
    private static function firstHop(ResponseInterface $inner): array
    {
        $status = 0;
        $headers = [];
        foreach ($inner->getInfo('response_headers') ?? [] as $line) {
            if (preg_match('#^HTTP/\d(?:\.\d)? (\d\d\d)(?: |$)#', $line, $m) === 1) {
                if ($status >= 200) {
                    return [$status, $headers, true];
                }
                $status = (int) $m[1];
                $headers = [];
            } else {
                [$name, $value] = explode(':', $line, 2) + [1 => ''];
                $headers[strtolower($name)][] = trim($value, " \t");
            }
        }

        return [$inner->getStatusCode(), $inner->getHeaders(false), false];
    }

    private function failed(PacedResponse $r): void
    {
        $this->queues->landed($r);
        $pass = $r->sending->pass;
        $r->sending->pass = null;
        if ($pass !== null) {
            // connected to nobody: it was not sent
            ($r->inner->getInfo('connect_time') ?? 0) > 0 || ($r->inner->getInfo('primary_ip') ?? '') !== ''
                ? $this->pacer->lost($pass) : $this->pacer->unsent($pass);
        }
        $this->ended($r);
    }

    private function seconds(): float
    {
        return $this->time->now() / 1e9;
    }

    /** Waits while nothing that is being read is in flight. What is in flight besides goes on. */
    private function pause(float $seconds): void
    {
        $others = $this->queues->inFlight();
        if ($others === []) {
            $this->time->sleep(Turn::nanos($seconds));

            return;
        }
        $inners = array_map(static fn (PacedResponse $r): ResponseInterface => $r->inner, $others);
        foreach ($this->client->stream($inners, $seconds) as $inner => $chunk) {
            $r = $others[array_search($inner, $inners, true)];
            try {
                if ($chunk->isTimeout()) {
                    return;
                }
                if ($chunk->isFirst()) {
                    if ($this->answered($r)) {
                        $r->held = $chunk;
                    }

                    return;
                }
            } catch (TransportExceptionInterface $e) {
                $this->failed($r);
                $r->failure = $e;

                return;
            }
        }
    }
}
