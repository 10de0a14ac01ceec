<?php

declare(strict_types=1);

// Sends requests through an adapter: php adapters.php ADAPTER URL STORE COUNT. It prints as JSON
// how often each status came, and how many 429s there were on the wire.

use GuzzleHttp\Client;
use GuzzleHttp\HandlerStack;
use GuzzleHttp\Pool;
use GuzzleHttp\Psr7\Request;
use Psr\Http\Message\ResponseInterface;
use Symfony\Component\HttpClient\CurlHttpClient;
use Symfony\Component\HttpClient\NativeHttpClient;
use Weir\Pacer\FileStore;
use Weir\Pacer\Guzzle\PaceMiddleware;
use Weir\Pacer\Pacer;
use Weir\Pacer\Symfony\PacedHttpClient;

require __DIR__.'/../../../../clients/php/tests/bootstrap.php';

[, $adapter, $url, $file, $count] = $argv;
$failures = [];
// a process that holds the lock may not run for long on a busy machine, which is no failure here
$pacer = new Pacer($file === '' ? null : new FileStore($file, lockWait: 60), onStoreFailure: static function (Throwable $e) use (&$failures): void {
    $failures[] = $e->getMessage();
});
$statuses = [];
$refused = 0;
$seen = static function (int $status) use (&$statuses): void {
    $statuses[$status] = ($statuses[$status] ?? 0) + 1;
};
$token = ['Authorization' => 'Bearer wpt_one_secret'];
switch ($adapter) {
    case 'guzzle':
        $stack = HandlerStack::create();
        $stack->push(new PaceMiddleware($pacer, maxWait: 60), 'pace');
        $stack->push(static fn (callable $handler): callable => static fn ($request, array $options) => $handler($request, $options)->then(
            static function (ResponseInterface $response) use (&$refused): ResponseInterface {
                $refused += $response->getStatusCode() === 429 ? 1 : 0;

                return $response;
            },
        ));
        $client = new Client(['handler' => $stack, 'http_errors' => false, 'timeout' => 90]);
        $seen($client->post($url, ['body' => 'first'])->getStatusCode());
        $requests = (static function () use ($url, $count): iterable {
            for ($i = 1; $i < (int) $count; $i++) {
                yield new Request('POST', $url, [], (string) $i);
            }
        })();
        (new Pool($client, $requests, ['concurrency' => 20, 'fulfilled' => static fn (ResponseInterface $r) => $seen($r->getStatusCode())]))
            ->promise()->wait();
        break;
    case 'guzzle-redirect':
        $stack = HandlerStack::create();
        $stack->push(new PaceMiddleware($pacer, maxWait: 0), 'pace');
        $seen((new Client(['handler' => $stack]))->get($url, ['headers' => $token])->getStatusCode());
        break;
    case 'symfony-redirect':
        $http = new PacedHttpClient(new CurlHttpClient(), $pacer, maxWait: 0);
        $seen($http->request('GET', $url, ['headers' => $token])->getStatusCode());
        break;
    default:
        $inner = $adapter === 'symfony-native' ? new NativeHttpClient([], 20) : new CurlHttpClient([], 20);
        $http = new PacedHttpClient($inner, $pacer, maxWait: 60, onWait: static function (\Weir\Pacer\Wait $w) use (&$refused): void {
            $refused += $w->reason === \Weir\Pacer\Wait::REFUSED ? 1 : 0;
        });
        $seen($http->request('POST', $url, ['body' => 'first'])->getStatusCode());
        $responses = [];
        for ($i = 1; $i < (int) $count; $i++) {
            $responses[] = $http->request('POST', $url, ['body' => (string) $i]);
        }
        foreach ($http->stream($responses) as $response => $chunk) {
            if ($chunk->isLast()) {
                $seen($response->getStatusCode());
            }
        }
}
echo json_encode(['statuses' => $statuses, 'refused' => $refused, 'failures' => $failures]);
