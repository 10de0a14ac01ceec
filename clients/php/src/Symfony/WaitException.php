<?php

declare(strict_types=1);

namespace Weir\Pacer\Symfony;

use Symfony\Contracts\HttpClient\Exception\TransportExceptionInterface;

/** The WaitException of Symfony HttpClient. */
final class WaitException extends \Weir\Pacer\WaitException implements TransportExceptionInterface
{
}
