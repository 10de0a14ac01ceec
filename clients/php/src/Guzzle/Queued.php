<?php

declare(strict_types=1);

namespace Weir\Pacer\Guzzle;

use GuzzleHttp\Promise\Promise;
use Psr\Http\Message\RequestInterface;
use Weir\Pacer\Body;
use Weir\Pacer\Call;

/**
 * A request, over all its attempts.
 *
 * @internal
 */
final class Queued
{
    public readonly Body $body;
    public readonly Call $call;
    public int $attempt = 1;
    /** hrtime before which it is not sent again. */
    public int $notBefore = 0;
    /** hrtime since which it waits. */
    public int $since = 0;
    public ?Promise $promise = null;
    /** Whether it waits for a call in flight to end. */
    public bool $needsSlot = false;

    public function __construct(
        public readonly RequestInterface $request,
        public readonly array $options,
        /** @var callable */
        public readonly mixed $handler,
        /** Nanoseconds that it may still wait. */
        public int $left,
    ) {
        $this->body = new Body($request);
        $this->call = $this->body->call();
    }
}
