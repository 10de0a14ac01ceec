<?php

declare(strict_types=1);

namespace Weir\Pacer\Psr18;

use Psr\Http\Client\ClientInterface;
use Psr\Http\Message\RequestInterface;
use Psr\Http\Message\ResponseInterface;
use Weir\Pacer\Body;
use Weir\Pacer\LastRead;
use Weir\Pacer\Pacer;
use Weir\Pacer\Time;
use Weir\Pacer\Turn;
use Weir\Pacer\Unsent;

/**
 * A PSR-18 client that sends a request when there is budget for it, and sends it again after a 429.
 * Other responses and errors are returned as they come: only a refused request was certainly not
 * processed.
 *
 * A body is sent again from where it began. If its stream cannot be rewound, the 429 is returned.
 */
final class PacedClient implements ClientInterface
{
    /**
     * @param float                              $maxWait seconds that all waits of one request may
     *                                                    take together. 0 never sleeps, which is
     *                                                    right in a page view
     * @param int                                $retries how often a request is sent again after a
     *                                                    429; then the 429 is returned
     * @param ?\Closure(\Weir\Pacer\Wait): void  $onWait  is called before a request begins to wait
     * @param float                              $jitter  seconds that are added to a wait at most
     */
    public function __construct(
        private readonly ClientInterface $client,
        private readonly Pacer $pacer,
        private readonly float $maxWait,
        private readonly int $retries = 10,
        private readonly ?\Closure $onWait = null,
        private readonly float $jitter = 0.1,
        private readonly Time $time = new Time(),
    ) {
    }

    /** @throws WaitException if the request would wait longer than maxWait allows */
    public function sendRequest(RequestInterface $request): ResponseInterface
    {
        $body = new Body($request);
        $turn = new Turn($this->pacer, $body->call(), $this->maxWait, $this->onWait, $this->jitter, $this->time);
        try {
            for ($attempt = 1; ; $attempt++) {
                $pass = $turn->enter();
                try {
                    $response = $this->client->sendRequest($request);
                } catch (\Throwable $e) {
                    Unsent::is($e) ? $this->pacer->unsent($pass) : $this->pacer->lost($pass);
                    throw $e;
                }
                $wait = $this->pacer->began($pass, $response->getStatusCode(), $response->getHeaders());
                if ($wait === null || $attempt > $this->retries || !$body->rewind()) {
                    return LastRead::of($response, $this->pacer, $pass);
                }
                $turn->again($wait);
            }
        } catch (\Weir\Pacer\WaitException $e) {
            throw new WaitException($e->getWait(), $this->maxWait);
        }
    }
}
