<?php

declare(strict_types=1);

namespace Weir\Pacer;

/**
 * A request was not sent, or not sent again after a 429, because it would wait longer than its
 * caller allows. It was not processed: the same request can be sent later.
 */
class WaitException extends \RuntimeException
{
    public function __construct(private readonly Wait $wait, float $maxWait)
    {
        $sent = $wait->reason === Wait::REFUSED ? 'was not sent again' : 'was not sent';
        parent::__construct(sprintf(
            '%s. The request %s, for a wait of at most %s s is allowed: schedule it for that time, or allow more',
            $wait->message(),
            $sent,
            rtrim(rtrim(sprintf('%.3F', $maxWait), '0'), '.'),
        ));
    }

    public function getWait(): Wait
    {
        return $this->wait;
    }

    /** Returns when to try again, on this machine's clock. */
    public function getUntil(): \DateTimeImmutable
    {
        return $this->wait->until;
    }

    /** Returns the whole seconds until then, at least 1: for a Retry-After of one's own. */
    public function getRetryAfter(): int
    {
        return $this->wait->retryAfter();
    }

    /** Returns why it has to wait: a constant of Wait. */
    public function getReason(): string
    {
        return $this->wait->reason;
    }

    /** Returns the name of the limiter, empty if no route covers the request. */
    public function getLimiter(): string
    {
        return $this->wait->limiter;
    }

    public function getHost(): string
    {
        return $this->wait->host;
    }
}
