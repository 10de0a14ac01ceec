<?php

declare(strict_types=1);

namespace Weir\Pacer;

/**
 * The result of a request.
 *
 * @internal
 */
final class Answer
{
    /** It never reached the server. */
    public const UNSENT = 0;
    /** No answer; it may have been charged. */
    public const LOST = 1;
    /** An answer without fields, or with impossible ones. */
    public const NO_FIELDS = 2;
    /** Fields, of this window. */
    public const BINDING = 3;
    /** Fields, of another window of the same limiter. */
    public const NONBOUND = 4;

    public function __construct(
        public int $kind,
        public bool $refused = false,
        public ?Report $fields = null,
        /** Nanoseconds that a 429 asks to wait; 0: it states none. */
        public int $wait = 0,
    ) {
    }

    public function as(int $kind): self
    {
        return new self($kind, $this->refused, $this->fields, $this->wait);
    }
}
