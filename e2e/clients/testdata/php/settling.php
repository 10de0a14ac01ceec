<?php

declare(strict_types=1);

// Makes calls that reserve units and hold slots: php settling.php URL STORE MODE COUNT. It reads an
// answer as a stream, or gets it as a whole. It prints as JSON how often each status came, and how
// many calls were refused.

use GuzzleHttp\Client;
use GuzzleHttp\Psr7\Request;
use Weir\Pacer\FileStore;
use Weir\Pacer\Pacer;
use Weir\Pacer\Psr18\PacedClient;
use Weir\Pacer\Routes;
use Weir\Pacer\Wait;

require __DIR__.'/../../../../clients/php/tests/bootstrap.php';

[, $url, $file, $mode, $count] = $argv;
$routes = new Routes([['name' => 'chat', 'routes' => ['/chat'], 'windows' => ['5000 per day by ip'],
    'cost' => ['reserve' => 400, 'from' => 'header:X-Cost'], 'in_flight' => '3 by ip']]);
$statuses = $failures = [];
$refused = 0;
$client = new PacedClient(
    new Client(['stream' => $mode === 'stream']),
    new Pacer(new FileStore($file, lockWait: 60), $routes, onStoreFailure: static function (Throwable $e) use (&$failures): void {
        $failures[] = $e->getMessage();
    }),
    maxWait: 100,
    onWait: static function (Wait $w) use (&$refused): void {
        $refused += $w->reason === Wait::REFUSED ? 1 : 0;
    },
);
for ($i = 0; $i < (int) $count; $i++) {
    $response = $client->sendRequest(new Request('POST', $url, [], $mode));
    for ($text = ''; !$response->getBody()->eof(); $text .= $response->getBody()->read(4));
    $seen = $response->getStatusCode().($text === 'the answer' ? '' : " with $text");
    $statuses[$seen] = ($statuses[$seen] ?? 0) + 1;
}
echo json_encode(['statuses' => $statuses, 'refused' => $refused, 'failures' => $failures]);
