<?php

declare(strict_types=1);

namespace Weir\Pacer;

use Psr\Http\Message\RequestInterface;

/**
 * The body of a PSR-7 request that may have to be sent once more.
 *
 * @internal
 */
final class Body
{
    private readonly ?int $start;

    public function __construct(private readonly RequestInterface $request)
    {
        $body = $request->getBody();
        $this->start = $body->isSeekable() ? $body->tell() : null;
    }

    /** Goes back to where the body began; false if that is not possible. */
    public function rewind(): bool
    {
        $body = $this->request->getBody();
        if ($this->start === null) {
            return $body->getSize() === 0;
        }
        try {
            $body->seek($this->start);
        } catch (\RuntimeException) {
            return false;
        }

        return true;
    }

    /** Returns what a server can count the request by. */
    public function call(): Call
    {
        return new Call($this->request->getMethod(), (string) $this->request->getUri(), $this->request->getHeaders(), function (): string {
            if ($this->start === null) {
                return '';
            }
            $text = $this->request->getBody()->getContents();
            $this->rewind();

            return $text;
        });
    }
}
