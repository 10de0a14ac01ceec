<?php

declare(strict_types=1);

namespace Weir\Pacer\Guzzle;

use GuzzleHttp\Promise\Create;
use GuzzleHttp\Promise\Promise;
use GuzzleHttp\Promise\PromiseInterface;
use GuzzleHttp\Promise\Utils;
use Psr\Http\Message\RequestInterface;
use Psr\Http\Message\ResponseInterface;
use Weir\Pacer\LastRead;
use Weir\Pacer\Pacer;
use Weir\Pacer\Pass;
use Weir\Pacer\Time;
use Weir\Pacer\Turn;
use Weir\Pacer\Unsent;
use Weir\Pacer\Wait;

/**
 * A middleware for Guzzle 7 that sends a request when there is budget for it, and sends it again
 * after a 429.
 *
 *     $stack = HandlerStack::create();
 *     $stack->push(new PaceMiddleware($pacer, maxWait: 0), 'pace');
 *
 * Pushed last, it sees each hop of a redirect, after Guzzle has taken the credential from one to
 * another host.
 *
 * A synchronous request sleeps while it waits. Asynchronous requests do not: they are queued in
 * order, and start when the answers of those in flight arrive. If none is in flight, the first of
 * the queue is handed to Guzzle's handler with a delay until there is budget again, and the others
 * follow its answer.
 *
 * If other processes share the budget, it may seem spent only while their requests are in flight.
 * Then the first of the queue asks again for some milliseconds, when somebody waits for a promise,
 * before it is handed over: a request with a delay cannot ask any more.
 */
final class PaceMiddleware
{
    /** Pauses between looks at a budget that others share: for so long other transfers stop. */
    private const PAUSES = [10_000_000, 20_000_000, 40_000_000];

    /** @var array<string, list<Queued>> the requests that wait, by what they wait for */
    private array $queues = [];

    /** @var array<string, array<int, PromiseInterface>> */
    private array $flying = [];

    /** @var array<string, true> the queues that are being looked at */
    private array $busy = [];

    /** @var array<string, true> the queues that will be looked at in Guzzle's next loop */
    private array $later = [];

    private int $sent = 0;

    /**
     * @param float                  $maxWait seconds that all waits of one request may take
     *                                        together. 0 never waits, which is right in a page view
     * @param int                    $retries how often a request is sent again after a 429; then
     *                                        the 429 is returned
     * @param ?\Closure(Wait): void  $onWait  is called before a request begins to wait
     * @param float                  $jitter  seconds that are added to a wait at most
     */
    public function __construct(
        private readonly Pacer $pacer,
        private readonly float $maxWait,
        private readonly int $retries = 10,
        private readonly ?\Closure $onWait = null,
        private readonly float $jitter = 0.1,
        private readonly Time $time = new Time(),
    ) {
    }

    /** @param callable(RequestInterface, array): PromiseInterface $handler */
    public function __invoke(callable $handler): callable
    {
        return function (RequestInterface $request, array $options) use ($handler): PromiseInterface {
            $q = new Queued($request, $options, $handler, Turn::nanos($this->maxWait));
            if ($options['synchronous'] ?? false) {
                return $this->now($q, new Turn($this->pacer, $q->call, $this->maxWait, $this->onWait, $this->jitter, $this->time));
            }
            $line = $this->pacer->queue($q->call);
            if (($this->queues[$line] ?? []) !== []) {
                $this->drain($line); // time has passed
            }
            $result = ($this->queues[$line] ?? []) === [] || $this->maxWait <= 0 ? $this->pacer->admit($q->call) : null;
            if ($result instanceof Pass) {
                return $this->start($line, $q, $result);
            }
            if ($result !== null && ($this->maxWait <= 0 || $result->least > $q->left)) {
                return Create::rejectionFor(new WaitException($result, $this->maxWait));
            }
            if ($result !== null && $this->onWait !== null) {
                ($this->onWait)($result);
            }
            $promise = $this->enqueue($line, $q, false);
            $this->drain($line);

            return $promise;
        };
    }

    /** Sends a synchronous request. */
    private function now(Queued $q, Turn $turn): PromiseInterface
    {
        try {
            $pass = $turn->enter();
        } catch (\Weir\Pacer\WaitException $e) {
            return Create::rejectionFor(new WaitException($e->getWait(), $this->maxWait));
        }

        return $this->send($q, $pass, $q->options)->then(function (ResponseInterface $response) use ($q, $turn, $pass) {
            $wait = $this->refused($q, $pass, $response);
            if ($wait === null) {
                return LastRead::of($response, $this->pacer, $pass);
            }
            try {
                $turn->again($wait);
            } catch (\Weir\Pacer\WaitException $e) {
                throw new WaitException($e->getWait(), $this->maxWait);
            }

            return $this->now($q, $turn);
        }, function ($reason) use ($pass) {
            $this->failed($pass, $reason);

            return Create::rejectionFor($reason);
        });
    }

    /** Sends an asynchronous request that has its pass. */
    private function start(string $line, Queued $q, Pass $pass, int $delay = 0): PromiseInterface
    {
        $options = $q->options;
        if ($delay > 0) {
            $options['delay'] = ($options['delay'] ?? 0) + intdiv($delay + 999_999, 1_000_000);
        }
        $id = ++$this->sent;
        $promise = $this->flying[$line][$id] = $this->send($q, $pass, $options);

        return $promise->then(function (ResponseInterface $response) use ($line, $q, $pass, $id) {
            $this->landed($line, $id);
            $wait = $this->refused($q, $pass, $response);
            try {
                if ($wait === null) {
                    return LastRead::of($response, $this->pacer, $pass);
                }
                if ($this->maxWait <= 0 || $wait->again > $q->left) {
                    throw new WaitException($wait, $this->maxWait);
                }
                $q->notBefore = $this->time->now() + $wait->again;
                if ($this->onWait !== null) {
                    ($this->onWait)($wait);
                }

                return $this->enqueue($line, $q, true);
            } finally {
                $this->drainAfter($line);
            }
        }, function ($reason) use ($line, $pass, $id) {
            $this->landed($line, $id);
            $this->failed($pass, $reason);
            $this->drainAfter($line);

            return Create::rejectionFor($reason);
        });
    }

    private function landed(string $line, int $id): void
    {
        unset($this->flying[$line][$id]);
        if ($this->flying[$line] === []) {
            unset($this->flying[$line]);
        }
    }

    /** Looks at the queue of a call that has returned, and at all those that wait for a slot. */
    private function drainAfter(string $line): void
    {
        $this->drain($line);
        foreach ($this->queues as $other => $queue) {
            if ($queue[0]->needsSlot ?? false) {
                $this->drain($other);
            }
        }
    }

    private function send(Queued $q, Pass $pass, array $options): PromiseInterface
    {
        try {
            return ($q->handler)($q->request, $options);
        } catch (\Throwable $e) {
            $this->failed($pass, $e);
            throw $e;
        }
    }

    private function failed(Pass $pass, mixed $reason): void
    {
        Unsent::is($reason) ? $this->pacer->unsent($pass) : $this->pacer->lost($pass);
    }

    /** Handles an answer. It returns how long to wait before the request is sent again, or null. */
    private function refused(Queued $q, Pass $pass, ResponseInterface $response): ?Wait
    {
        $wait = $this->pacer->began($pass, $response->getStatusCode(), $response->getHeaders());
        if ($wait === null || $q->attempt > $this->retries || !$q->body->rewind()) {
            return null;
        }
        $q->attempt++;

        return $wait;
    }

    private function enqueue(string $line, Queued $q, bool $first): PromiseInterface
    {
        $q->since = $this->time->now();
        $q->promise = new Promise(
            fn () => $this->await($line, $q),
            fn () => $this->remove($line, $q),
        );
        $this->queues[$line] ??= [];
        if ($first) {
            array_unshift($this->queues[$line], $q);
        } else {
            $this->queues[$line][] = $q;
        }

        return $q->promise;
    }

    private function remove(string $line, Queued $q): void
    {
        $this->queues[$line] = array_values(array_filter($this->queues[$line] ?? [], static fn (Queued $one): bool => $one !== $q));
    }

    /** Goes on until a queued request has started: somebody waits for its promise. */
    private function await(string $line, Queued $q): void
    {
        while (in_array($q, $this->queues[$line] ?? [], true)) {
            // calls of other queues may hold the slot that this one waits for
            $flying = $this->flying[$line] ?? (($this->queues[$line][0]->needsSlot ?? false) ? array_merge(...array_values($this->flying)) : []);
            foreach ($flying as $other) {
                $other->wait(false);
                break;
            }
            Utils::queue()->run();
            $this->drain($line, true);
        }
    }

    /** Looks at a queue in Guzzle's next loop, after the answers that have arrived. */
    private function later(string $line): void
    {
        if (isset($this->later[$line])) {
            return;
        }
        $this->later[$line] = true;
        Utils::queue()->add(fn () => Utils::queue()->add(function () use ($line): void {
            unset($this->later[$line]);
            $this->drain($line, true);
        }));
    }

    /** Starts the queued requests that may start, in order. It sleeps only if it is patient. */
    private function drain(string $line, bool $patient = false): void
    {
        $first = $this->queues[$line][0] ?? null;
        if ($first === null || isset($this->busy[$line])) {
            return;
        }
        $this->busy[$line] = true;
        try {
            do {
                $this->pacer->waiting($first->call, count($this->queues[$line]));
            } while ($this->startFirst($line, $patient) && $this->queues[$line] !== []);
        } finally {
            $this->pacer->waiting($first->call, count($this->queues[$line]));
            unset($this->busy[$line]);
            if ($this->queues[$line] === []) {
                unset($this->queues[$line]);
            }
        }
    }

    /** Starts or rejects the first of a queue; false if it has to stay. */
    private function startFirst(string $line, bool $patient): bool
    {
        $q = $this->queues[$line][0];
        if ($q->promise->getState() !== PromiseInterface::PENDING) { // its wait failed
            array_shift($this->queues[$line]);

            return true;
        }
        $flying = ($this->flying[$line] ?? []) !== []; // an answer will come
        for ($pauses = self::PAUSES; ;) {
            $now = $this->time->now();
            $left = $q->left - ($now - $q->since);
            $wait = null;
            $pause = $least = $q->notBefore - $now;
            if ($pause <= 0) {
                $result = $this->pacer->admit($q->call);
                if ($result instanceof Pass) {
                    $this->leave($line, $q, $left);
                    $q->promise->resolve($this->started($line, $q, $result, 0));

                    return true;
                }
                [$wait, $pause, $least] = [$result, $result->again, $result->least];
            }
            $q->needsSlot = $wait?->reason === Wait::SLOTS;
            if ($wait !== null && ($left <= 0 || $least > $left)) {
                return $this->reject($line, $q, $left, $wait);
            }
            if ($flying || $q->needsSlot && $this->flying !== []) {
                return false;
            }
            // with the requests of others in flight it may be over sooner
            if ($wait === null || $least >= $pause || $pauses === [] || !$this->pacer->isShared() && !$q->needsSlot) {
                break;
            }
            if (!$patient) {
                $this->later($line);

                return false;
            }
            $this->time->sleep(min(array_shift($pauses), $pause, $left));
        }
        if ($q->needsSlot) {
            return false; // nobody knows when one is free, so it is asked again
        }
        if ($wait !== null && $pause > $left) {
            return $this->reject($line, $q, $left, $wait);
        }
        $pass = $this->pacer->reserve($q->call);
        if ($pass === null) {
            $q->needsSlot = true;

            return false;
        }
        $this->leave($line, $q, $left - $pause);
        $delay = $pause + min(random_int(0, Turn::nanos($this->jitter)), max($left - $pause, 0));
        $q->promise->resolve($this->started($line, $q, $pass, $delay));

        return true;
    }

    private function reject(string $line, Queued $q, int $left, Wait $wait): bool
    {
        $this->leave($line, $q, $left);
        $q->promise->reject(new WaitException($wait, $this->maxWait));

        return true;
    }

    private function leave(string $line, Queued $q, int $left): void
    {
        array_shift($this->queues[$line]);
        $q->left = $left;
        $q->notBefore = 0;
    }

    private function started(string $line, Queued $q, Pass $pass, int $delay): PromiseInterface
    {
        try {
            return $this->start($line, $q, $pass, $delay);
        } catch (\Throwable $e) {
            return Create::rejectionFor($e);
        }
    }
}
