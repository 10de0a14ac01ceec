<?php

declare(strict_types=1);

namespace Weir\Pacer;

use Psr\Http\Message\ResponseInterface;
use Psr\Http\Message\StreamInterface;

/**
 * The body of a PSR-7 response that is still being received. When it has been read or closed, or is
 * forgotten, the answer has ended.
 *
 * @internal
 */
final class LastRead implements StreamInterface
{
    private function __construct(private readonly StreamInterface $body, private readonly Pacer $pacer, private readonly Pass $pass)
    {
    }

    /** Returns a response whose end ends the answer to a call. One that is in memory has ended. */
    public static function of(ResponseInterface $response, Pacer $pacer, Pass $pass): ResponseInterface
    {
        if (!$pass->underWay) {
            return $response;
        }
        $body = $response->getBody();
        if (in_array($body->getMetadata('wrapper_type'), ['PHP', 'plainfile'], true) || $body->eof()) {
            $pacer->ended($pass);

            return $response;
        }

        return $response->withBody(new self($body, $pacer, $pass));
    }

    /** Ends the answer if nothing follows what was read. */
    private function check(): void
    {
        if ($this->pass->underWay && $this->body->eof()) {
            $this->pacer->ended($this->pass);
        }
    }

    public function read($length): string
    {
        $text = $this->body->read($length);
        $this->check();

        return $text;
    }

    public function getContents(): string
    {
        $text = $this->body->getContents();
        $this->pacer->ended($this->pass);

        return $text;
    }

    public function __toString(): string
    {
        $text = (string) $this->body;
        $this->pacer->ended($this->pass);

        return $text;
    }

    public function close(): void
    {
        $this->body->close();
        $this->pacer->ended($this->pass);
    }

    public function detach()
    {
        $this->pacer->ended($this->pass); // nobody sees what becomes of it

        return $this->body->detach();
    }

    public function eof(): bool
    {
        $this->check();

        return $this->body->eof();
    }

    public function getSize(): ?int
    {
        return $this->body->getSize();
    }

    public function tell(): int
    {
        return $this->body->tell();
    }

    public function isSeekable(): bool
    {
        return $this->body->isSeekable();
    }

    public function seek($offset, $whence = SEEK_SET): void
    {
        $this->body->seek($offset, $whence);
    }

    public function rewind(): void
    {
        $this->body->rewind();
    }

    public function isWritable(): bool
    {
        return $this->body->isWritable();
    }

    public function write($string): int
    {
        return $this->body->write($string);
    }

    public function isReadable(): bool
    {
        return $this->body->isReadable();
    }

    public function getMetadata($key = null)
    {
        return $this->body->getMetadata($key);
    }
}
