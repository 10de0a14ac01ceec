<?php

declare(strict_types=1);

namespace Weir\Pacer\Psr18;

use Psr\Http\Client\ClientExceptionInterface;

/** The WaitException of a PSR-18 client. */
final class WaitException extends \Weir\Pacer\WaitException implements ClientExceptionInterface
{
}
