<?php

declare(strict_types=1);

// A page view that sends one request. It prints what it saw as JSON.

use GuzzleHttp\Client;
use Nyholm\Psr7\Request;
use Psr\Http\Client\ClientInterface;
use Psr\Http\Message\RequestInterface;
use Psr\Http\Message\ResponseInterface;
use Weir\Pacer\ApcuStore;
use Weir\Pacer\FileStore;
use Weir\Pacer\Pacer;
use Weir\Pacer\PdoStore;
use Weir\Pacer\Psr18\PacedClient;
use Weir\Pacer\Store;

require __DIR__.'/../../../../clients/php/tests/bootstrap.php';

/** Returns the microseconds of processor time that this process has had. */
function cpu(): float
{
    $u = getrusage();

    return ($u['ru_utime.tv_sec'] + $u['ru_stime.tv_sec']) * 1e6 + $u['ru_utime.tv_usec'] + $u['ru_stime.tv_usec'];
}

/** Sends, and keeps what it took and how often it was refused. */
final class Measured implements ClientInterface
{
    public int $nanos = 0;
    public float $cpu = 0;
    public int $refused = 0;
    public bool $served = false;

    public function __construct(private readonly Client $client)
    {
    }

    public function sendRequest(RequestInterface $request): ResponseInterface
    {
        [$start, $cpu] = [hrtime(true), cpu()];
        $response = $this->client->sendRequest($request);
        $this->nanos += hrtime(true) - $start;
        $this->cpu += cpu() - $cpu;
        $this->served = $response->getStatusCode() !== 429;
        $this->refused += $this->served ? 0 : 1;

        return $response;
    }
}

/** Is killed inside of the step after the request was answered. */
final class Dying implements Store
{
    public ?Measured $client = null;

    public function __construct(private readonly Store $store)
    {
    }

    public function update(string $key, callable $change): void
    {
        $this->store->update($key, function (?string $state) use ($change): string {
            if ($this->client?->served) {
                posix_kill(getmypid(), SIGKILL);
            }

            return $change($state);
        });
    }
}

$failures = [];
$waited = false;
$kind = $_GET['store'];
// another worker may not run for long on a busy machine in the middle of a step: that is no failure
$store = match (true) {
    $kind === 'apcu' => new ApcuStore(patience: 60),
    str_starts_with($kind, 'file:') => new FileStore(substr($kind, 5), lockWait: 60),
    default => new PdoStore(static fn () => new PDO($kind, $_GET['user'] ?? null), patience: 60),
};
if (isset($_GET['create'])) {
    $store->createTable();
}
$ahead = (int) ($_GET['ahead'] ?? 0);
$measured = new Measured(new Client());
if (isset($_GET['die'])) {
    $store = new Dying($store);
    $store->client = $measured;
}
foreach (glob(__DIR__.'/../../../../clients/php/src/{*,Psr18/*}.php', GLOB_BRACE) as $file) {
    require_once $file; // to be measured apart
}
$request = new Request('POST', $_GET['url'], [], $_GET['n']);
[$start, $cpu] = [hrtime(true), cpu()];
$paced = new PacedClient(
    $measured,
    new Pacer(
        $store,
        onStoreFailure: static function (Throwable $e) use (&$failures): void {
            $failures[] = $e->getMessage();
        },
        clock: $ahead === 0 ? null : static fn (): int => (int) ((microtime(true) + $ahead) * 1e6) * 1000,
    ),
    maxWait: (float) $_GET['wait'],
    onWait: static function () use (&$waited): void {
        $waited = true;
    },
);
$answer = ['status' => 0, 'reset' => 0, 'error' => '', 'again' => 0];
try {
    $response = $paced->sendRequest($request);
    $answer['status'] = $response->getStatusCode();
    $answer['reset'] = (int) $response->getHeaderLine('X-RateLimit-Reset');
} catch (\Weir\Pacer\WaitException $e) {
    $answer['error'] = $e->getMessage();
    $answer['again'] = $e->getRetryAfter();
}
$took = hrtime(true) - $start;
$cpu = cpu() - $cpu - $measured->cpu;
$took -= $measured->nanos;
$more = [];
for ($i = 0; $i < (int) ($_GET['more'] ?? 0); $i++) {
    [$start, $before] = [cpu(), $measured->cpu];
    $paced->sendRequest(new Request('POST', $_GET['url'], [], "{$_GET['n']} more"));
    $more[] = cpu() - $start - ($measured->cpu - $before);
}
header('Content-Type: application/json');
echo json_encode($answer + [
    'refused' => $measured->refused,
    'waited' => $waited,
    'overhead' => $took,
    'cpu' => $cpu,
    'more' => $more,
    'failures' => $failures,
    'pid' => getmypid(),
]);
