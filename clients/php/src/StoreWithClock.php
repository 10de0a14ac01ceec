<?php

declare(strict_types=1);

namespace Weir\Pacer;

/**
 * A Store for processes of several machines, whose clocks may differ: the states have its time.
 */
interface StoreWithClock extends Store
{
    /** Returns the store's time in Unix nanoseconds. */
    public function time(): int;
}
