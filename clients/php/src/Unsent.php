<?php

declare(strict_types=1);

namespace Weir\Pacer;

/**
 * Decides whether a request of a PSR-18 client or of Guzzle may have reached the server.
 *
 * @internal
 */
final class Unsent
{
    /** Numbers of curl: a proxy or a host that cannot be resolved, and no connection. */
    private const CURL = [5, 6, 7];

    public static function is(mixed $error): bool
    {
        if ($error instanceof \GuzzleHttp\Exception\ConnectException) {
            return in_array($error->getHandlerContext()['errno'] ?? 0, self::CURL, true);
        }

        // PSR-18: a request that is not valid is not sent
        return $error instanceof \Psr\Http\Client\RequestExceptionInterface
            && !$error instanceof \Psr\Http\Client\NetworkExceptionInterface
            && !$error instanceof \GuzzleHttp\Exception\RequestException;
    }
}
