<?php

declare(strict_types=1);

namespace Weir\Pacer\Guzzle;

use GuzzleHttp\Exception\GuzzleException;

/** The WaitException of Guzzle. */
final class WaitException extends \Weir\Pacer\WaitException implements GuzzleException
{
}
