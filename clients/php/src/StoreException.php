<?php

declare(strict_types=1);

namespace Weir\Pacer;

/** A Store could not read or write a state. */
class StoreException extends \RuntimeException
{
}
