<?php
// A process of callers in PHP: it takes its job as JSON from standard input, waits for an empty line, sends the job's
// requests through one client, and prints a report. The forms are those of job.go.
declare(strict_types=1);

use GuzzleHttp\Client;
use GuzzleHttp\HandlerStack;
use GuzzleHttp\Middleware;
use GuzzleHttp\Promise\EachPromise;
use GuzzleHttp\Promise\PromiseInterface;
use GuzzleHttp\Psr7\Request;
use Psr\Http\Message\RequestInterface;
use Psr\Http\Message\ResponseInterface;
use Weir\Pacer\FileStore;
use Weir\Pacer\Guzzle\PaceMiddleware;
use Weir\Pacer\Pacer;
use Weir\Pacer\Psr18\PacedClient;

require '/usr/share/php/GuzzleHttp/autoload.php';
require __DIR__ . '/../../../clients/php/autoload.php';

/** A Report counts what is sent and answered. */
final class Report
{
    public int $sent = 0;
    public int $served = 0;
    public int $refused = 0;
    public int $told = 0;
    public int $unshared = 0;
    public int $failed = 0;
    public string $first = '';
    public float $longest = 0; // seconds
    public ?float $began = null;
    public ?float $ended = null;
    /** @var array<int, int> */
    public array $refusedBy = [];
    /** @var array<int, int> */
    public array $servedBy = [];

    public function sending(): void
    {
        $this->sent++;
        $this->began ??= microtime(true);
    }

    public function answered(int $status, int $reset): void
    {
        if ($status === 429) {
            $this->refused++;
            $this->refusedBy[$reset] = ($this->refusedBy[$reset] ?? 0) + 1;
        } elseif ($status === 200) {
            $this->served++;
            $this->servedBy[$reset] = ($this->servedBy[$reset] ?? 0) + 1;
            $this->ended = microtime(true);
        }
    }

    /** result checks the answer to a call that began at a time. */
    public function result(int $number, float $began, ?int $status, string $text): void
    {
        $this->longest = max($this->longest, microtime(true) - $began);
        if ($status !== 200 || $text !== (string) $number) {
            if ($this->failed++ === 0) {
                $this->first = sprintf('request %d was answered %s %s', $number, $status ?? 'by an error:', substr($text, 0, 200));
            }
        }
    }

    public function json(): string
    {
        $time = static fn (?float $at): ?string => $at === null ? null
            : gmdate('Y-m-d\TH:i:s', (int) $at) . sprintf('.%06dZ', (int) (fmod($at, 1) * 1e6));
        return json_encode(array_filter([
            'Sent' => $this->sent, 'Served' => $this->served, 'Refused' => $this->refused,
            'RefusedBy' => (object) $this->refusedBy, 'ServedBy' => (object) $this->servedBy,
            'Told' => $this->told, 'Unshared' => $this->unshared, 'Longest' => (int) ($this->longest * 1e9),
            'Failed' => $this->failed, 'First' => $this->first,
            'Began' => $time($this->began), 'Ended' => $time($this->ended),
        ], static fn ($value) => $value !== null), JSON_THROW_ON_ERROR | JSON_INVALID_UTF8_SUBSTITUTE);
    }
}

/** requestOf gives a request the method and the body of its number, as in upstream.go. */
function requestOf(object $job, int $number): Request
{
    $method = ['GET', 'PUT', 'POST'][$number % 3];
    $path = $method === 'GET' ? '/v1/wp/status' : '/v1/wp/documents';
    $body = $method === 'GET' ? null : str_repeat(hash('sha256', (string) $number), 1 + $number % 64);
    return new Request($method, "{$job->URL}{$path}?number={$number}", ['Authorization' => "Bearer {$job->Token}"], $body);
}

/** counting is a Guzzle middleware that counts every attempt. */
function counting(Report $report): callable
{
    return static fn (callable $next) => static function (RequestInterface $request, array $options) use ($next, $report): PromiseInterface {
        $report->sending();
        return $next($request, $options)->then(static function (ResponseInterface $response) use ($report) {
            $report->answered($response->getStatusCode(), (int) $response->getHeaderLine('X-RateLimit-Reset'));
            return $response;
        });
    };
}

/** guzzle sends all requests through a client, as many at a time as the job says. */
function guzzle(object $job, Report $report, HandlerStack $stack): void
{
    $client = new Client(['handler' => $stack]);
    $calls = (static function () use ($job, $report, $client) {
        for ($i = 0; $i < $job->Requests; $i++) {
            $number = $job->First + $i;
            $began = microtime(true);
            yield $client->sendAsync(requestOf($job, $number))->then(
                static fn (ResponseInterface $response) => $report->result($number, $began, $response->getStatusCode(), (string) $response->getBody()),
                static fn (Throwable $error) => $report->result($number, $began, null, $error->getMessage()),
            );
        }
    })();
    (new EachPromise($calls, ['concurrency' => $job->Goroutines]))->promise()->wait();
}

/**
 * oneByOne sends all requests in turn.
 *
 * @param callable(Request): array{int, string} $send
 */
function oneByOne(object $job, Report $report, callable $send): void
{
    for ($i = 0; $i < $job->Requests; $i++) {
        $number = $job->First + $i;
        $began = microtime(true);
        try {
            [$status, $text] = $send(requestOf($job, $number));
            $report->result($number, $began, $status, $text);
        } catch (Throwable $error) {
            $report->result($number, $began, null, $error->getMessage());
        }
    }
}

/** wordPress loads WordPress's HTTP API, without a site and a database. */
function wordPress(): void
{
    error_reporting(E_ALL & ~E_DEPRECATED);
    define('ABSPATH', '/usr/share/wordpress/');
    define('WPINC', 'wp-includes');
    define('WP_CONTENT_DIR', sys_get_temp_dir());
    $GLOBALS['wp_version'] = '6.1';
    foreach (['compat', 'load', 'plugin', 'class-wp-error', 'functions', 'formatting', 'pluggable', 'http', 'class-wp-http', 'class-requests', 'class-wp-http-proxy',
        'class-wp-http-response', 'class-wp-http-requests-response', 'class-wp-http-requests-hooks', 'class-wp-http-cookie', 'class-wp-http-encoding', 'kses', 'l10n', 'option'] as $file) {
        require_once ABSPATH . WPINC . "/$file.php";
    }
    function get_bloginfo(): string
    {
        return 'https://example.com';
    }
    Requests::register_autoloader();
}

/** pacer makes the pacer of a job, with its state file and its clock. */
function pacer(object $job, Report $report): Pacer
{
    return new Pacer(
        store: $job->Shared === '' ? null : new FileStore($job->Shared),
        threshold: $job->Everything ? 0 : null,
        onStoreFailure: static function (Throwable $error) use ($report): void {
            $report->unshared++;
            fwrite(STDERR, "the state file: {$error->getMessage()}\n");
        },
        clock: $job->Shift === 0 ? null : static fn (): int => (int) (microtime(true) * 1e6) * 1000 + $job->Shift,
    );
}

$job = json_decode((string) fgets(STDIN), false, 512, JSON_THROW_ON_ERROR);
$report = new Report();
$maxWait = $job->Within / 1e9;
$contestants = [
    'clients/php, Guzzle' => static function () use ($job, $report, $maxWait) {
        $stack = HandlerStack::create();
        $stack->push(new PaceMiddleware(pacer($job, $report), $maxWait));
        $stack->push(counting($report));
        return static fn () => guzzle($job, $report, $stack);
    },
    'clients/php' => static function () use ($job, $report, $maxWait) {
        $stack = HandlerStack::create();
        $stack->push(counting($report));
        $client = new PacedClient(new Client(['handler' => $stack]), pacer($job, $report), $maxWait);
        return static fn () => oneByOne($job, $report, static function (Request $request) use ($client) {
            $response = $client->sendRequest($request);
            return [$response->getStatusCode(), (string) $response->getBody()];
        });
    },
    'Guzzle' => static function () use ($job, $report) {
        $stack = HandlerStack::create();
        $stack->push(counting($report));
        return static fn () => guzzle($job, $report, $stack);
    },
    'Guzzle, its retry middleware' => static function () use ($job, $report) {
        $stack = HandlerStack::create();
        $stack->push(Middleware::retry(
            static fn (int $retries, RequestInterface $request, ?ResponseInterface $response = null) => $retries < 10 && $response?->getStatusCode() === 429,
        ));
        $stack->push(counting($report));
        return static fn () => guzzle($job, $report, $stack);
    },
    'wp_remote_request' => static function () use ($job, $report) {
        wordPress();
        return static fn () => oneByOne($job, $report, static function (Request $request) use ($report) {
            $report->sending();
            $answer = wp_remote_request((string) $request->getUri(), [
                'method' => $request->getMethod(), 'body' => (string) $request->getBody(), 'headers' => ['Authorization' => $request->getHeaderLine('Authorization')],
            ]);
            if (is_wp_error($answer)) {
                throw new RuntimeException($answer->get_error_message());
            }
            $status = (int) wp_remote_retrieve_response_code($answer);
            $report->answered($status, (int) wp_remote_retrieve_header($answer, 'x-ratelimit-reset'));
            return [$status, wp_remote_retrieve_body($answer)];
        });
    },
];
$open = $contestants[$job->Who] ?? throw new RuntimeException("there is no contestant {$job->Who}: expected one of " . implode(', ', array_keys($contestants)));
$run = $open();
echo "ready\n";
fgets(STDIN);
$run();
echo $report->json(), "\n";
