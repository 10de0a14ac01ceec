<?php

declare(strict_types=1);

namespace Weir\Pacer\Tests;

use GuzzleHttp\Client;
use GuzzleHttp\Exception\ConnectException;
use GuzzleHttp\HandlerStack;
use GuzzleHttp\Pool;
use GuzzleHttp\Promise\Create;
use GuzzleHttp\Promise\Promise;
use GuzzleHttp\Promise\PromiseInterface;
use GuzzleHttp\Promise\Utils;
use GuzzleHttp\Psr7\NoSeekStream;
use GuzzleHttp\Psr7\Request;
use GuzzleHttp\Psr7\Response;
use PHPUnit\Framework\TestCase;
use Psr\Http\Message\RequestInterface;
use Weir\Pacer\Call;
use Weir\Pacer\Guzzle\PaceMiddleware;
use Weir\Pacer\Guzzle\WaitException;
use Weir\Pacer\MemoryStore;
use Weir\Pacer\Pacer;
use Weir\Pacer\Pass;

final class GuzzleTest extends TestCase
{
    private Server $server;
    private Pacer $pacer;
    /** @var list<RequestInterface> */
    private array $sent = [];
    /** @var list<int> milliseconds */
    private array $delays = [];
    /** @var list<array{Promise, RequestInterface}> requests in flight */
    private array $flying = [];

    protected function setUp(): void
    {
        $this->server = new Server();
        $this->pacer = $this->server->pacer();
    }

    /** A handler whose answers come when somebody waits for one of its promises, in order. */
    private function handler(): \Closure
    {
        return function (RequestInterface $request, array $options): PromiseInterface {
            $this->sent[] = $request;
            $delay = $options['delay'] ?? 0;
            if ($delay > 0) {
                $this->delays[] = $delay;
            }
            $promise = new Promise(function () use (&$promise): void {
                while ($promise->getState() === PromiseInterface::PENDING) {
                    $this->answer();
                }
            });
            $this->flying[] = [$promise, $request, $delay];

            return $promise;
        };
    }

    private function answer(): void
    {
        [$promise, $request, $delay] = array_shift($this->flying);
        $this->server->now += $delay * 1_000_000;
        [$status, $fields] = $this->server->answer((string) $request->getBody());
        $promise->resolve(new Response($status, $fields));
    }

    private function client(float $maxWait, ?callable $handler = null, int $retries = 10): Client
    {
        $stack = HandlerStack::create($handler ?? $this->handler());
        $stack->push(new PaceMiddleware($this->pacer, $maxWait, $retries, jitter: 0, time: $this->server->time()), 'pace');

        return new Client(['handler' => $stack, 'http_errors' => false]);
    }

    public function testConcurrentRequestsAreQueuedAndFollowTheAnswers(): void
    {
        $client = $this->client(200);
        $promises = [];
        for ($i = 0; $i < 25; $i++) {
            $promises[] = $client->getAsync('https://api.example.com/things/'.$i);
        }
        foreach (Utils::unwrap($promises) as $response) {
            self::assertSame(200, $response->getStatusCode());
        }
        // without routes nothing is known at first, so the first window may be overspent once
        self::assertSame(25, $this->server->served);
        self::assertCount(2, $this->delays, 'one probe for each window after the first');
    }

    public function testNoneIsRefusedOnceTheBudgetIsKnown(): void
    {
        $client = $this->client(200);
        $client->get('https://api.example.com/things');
        $promises = [];
        for ($i = 0; $i < 34; $i++) {
            $promises[] = $client->getAsync('https://api.example.com/things/'.$i);
        }
        self::assertCount(10, $this->sent, 'what the window has left');
        Utils::unwrap($promises);
        self::assertSame([35, 0], [$this->server->served, $this->server->refused]);
        self::assertSame(range(0, 33), array_map(
            static fn (RequestInterface $r): int => (int) basename($r->getUri()->getPath()),
            array_slice($this->sent, 1),
        ), 'in order');
    }

    public function testAPoolPassesItsLimit(): void
    {
        $client = $this->client(200);
        $client->get('https://api.example.com/things');
        $requests = (static function () {
            for ($i = 0; $i < 40; $i++) {
                yield new Request('GET', 'https://api.example.com/things/'.$i);
            }
        })();
        $statuses = [];
        (new Pool($client, $requests, ['concurrency' => 5, 'fulfilled' => static function (Response $r) use (&$statuses): void {
            $statuses[] = $r->getStatusCode();
        }]))->promise()->wait();
        self::assertSame(array_fill(0, 40, 200), $statuses);
        self::assertSame(0, $this->server->refused);
    }

    public function testAnotherHostIsNotHeldUp(): void
    {
        $client = $this->client(200);
        for ($i = 0; $i < 10; $i++) {
            $client->get('https://api.example.com/things');
        }
        $this->sent = [];
        $waiting = $client->getAsync('https://api.example.com/things'); // is sent with a delay
        $queued = $client->getAsync('https://api.example.com/things');
        $other = $client->getAsync('https://other.example.com/things');
        self::assertSame(['api.example.com', 'other.example.com'], array_map(static fn ($r) => $r->getUri()->getHost(), $this->sent));
        self::assertCount(1, $this->delays);
        Utils::unwrap([$waiting, $queued, $other]);
        self::assertSame(0, $this->server->refused);
    }

    public function testZeroNeverWaits(): void
    {
        $client = $this->client(0);
        for ($i = 0; $i < 10; $i++) {
            $client->get('https://api.example.com/things');
        }
        foreach (['get', 'getAsync'] as $method) {
            try {
                $result = $client->$method('https://api.example.com/things');
                $result instanceof PromiseInterface && $result->wait();
                self::fail('the budget is spent');
            } catch (WaitException $e) {
                self::assertSame(60, $e->getRetryAfter());
            }
        }
        self::assertSame([], $this->delays);
        self::assertCount(10, $this->sent);
    }

    public function testAWaitThatIsTooLongRejectsThePromise(): void
    {
        $client = $this->client(30);
        for ($i = 0; $i < 10; $i++) {
            $client->get('https://api.example.com/things');
        }
        $this->expectException(WaitException::class);
        $client->getAsync('https://api.example.com/things')->wait();
    }

    public function testARefusedBodyIsSentAgain(): void
    {
        $client = $this->client(90);
        $client->get('https://api.example.com/things');
        $this->server->spend(9);
        $response = $client->postAsync('https://api.example.com/things', ['body' => 'exactly this'])->wait();
        self::assertSame(200, $response->getStatusCode());
        self::assertSame(1, $this->server->refused);
        self::assertSame(['', 'exactly this'], $this->server->bodies);
    }

    public function testThe429OfABodyThatCannotBeRewoundIsReturned(): void
    {
        $this->server->spend(10);
        $body = new NoSeekStream(\GuzzleHttp\Psr7\Utils::streamFor('once'));
        $response = $this->client(90)->postAsync('https://api.example.com/things', ['body' => $body])->wait();
        self::assertSame(429, $response->getStatusCode());
    }

    public function testA429IsReturnedAfterTheRetries(): void
    {
        $sent = 0;
        $handler = static function () use (&$sent): PromiseInterface {
            $sent++;

            return Create::promiseFor(new Response(429, ['Retry-After' => '1']));
        };
        self::assertSame(429, $this->client(3600, $handler, 2)->getAsync('https://api.example.com/things')->wait()->getStatusCode());
        self::assertSame(3, $sent);
    }

    public function testARequestThatNeverReachedTheServerLeavesItsSlot(): void
    {
        $call = new Call('GET', 'https://api.example.com/things');
        $this->client(0)->get('https://api.example.com/things');
        foreach ([[7, 0], [28, 0]] as [$errno]) {
            $client = $this->client(0, static fn (RequestInterface $r) => Create::rejectionFor(new ConnectException('no', $r, null, ['errno' => $errno])));
            try {
                $client->get('https://api.example.com/things');
                self::fail('there is no connection');
            } catch (ConnectException) {
                self::assertSame(0, $this->pacer->budget($call)->inFlight);
            }
        }
        // of the two the time-out may have been charged
        $started = 0;
        while ($this->pacer->admit($call) instanceof \Weir\Pacer\Pass) {
            // each Pass is forgotten, and so counts as lost
            $started++;
        }
        self::assertSame(8, $started);
    }

    public function testTheTokenStaysHomeWhenAnotherHostAnswers(): void
    {
        $handler = function (RequestInterface $r): PromiseInterface {
            $this->sent[] = $r;
            $home = $r->getUri()->getHost() === 'api.example.com';

            return Create::promiseFor($home
                ? new Response(302, ['Location' => 'https://other.example.com/elsewhere', 'X-RateLimit-Limit' => '10',
                    'X-RateLimit-Remaining' => '7', 'X-RateLimit-Reset' => '1800000060', 'Date' => 'Fri, 15 Jan 2027 08:00:00 GMT'])
                : new Response(200, ['X-RateLimit-Limit' => '5', 'X-RateLimit-Remaining' => '0',
                    'X-RateLimit-Reset' => '1800000060', 'Date' => 'Fri, 15 Jan 2027 08:00:00 GMT']));
        };
        $client = $this->client(0, $handler);
        $client->get('https://api.example.com/things', ['headers' => ['Authorization' => 'Bearer wpt_one_secret']]);
        self::assertSame(['Bearer wpt_one_secret', ''], array_map(static fn ($r) => $r->getHeaderLine('Authorization'), $this->sent));
        $home = $this->pacer->budget(new Call('GET', 'https://api.example.com/things', ['Authorization' => 'Bearer wpt_one_secret']));
        self::assertSame([10, 7], [$home->limit, $home->remaining]);
        $other = $this->pacer->budget(new Call('GET', 'https://other.example.com/elsewhere'));
        self::assertSame([5, 0], [$other->limit, $other->remaining]);
    }

    public function testACanceledRequestLeavesTheQueue(): void
    {
        $client = $this->client(200);
        for ($i = 0; $i < 10; $i++) {
            $client->get('https://api.example.com/things');
        }
        $first = $client->getAsync('https://api.example.com/things/first');
        $second = $client->getAsync('https://api.example.com/things/second');
        $third = $client->getAsync('https://api.example.com/things/third');
        $second->cancel();
        Utils::unwrap([$first, $third]);
        self::assertSame(['/things/first', '/things/third'], array_map(static fn ($r) => $r->getUri()->getPath(), array_slice($this->sent, 10)));
    }

    /**
     * Another process has all that is left in flight. The budget of this test and of that process
     * is shared.
     *
     * @return array{Pacer, list<\Weir\Pacer\Pass>} the other process and its calls
     */
    private function another(): array
    {
        $store = new MemoryStore();
        $this->pacer = $this->server->pacer(0, $store);
        $this->client(200)->get('https://api.example.com/things');
        $other = $this->server->pacer(0, $store);
        $passes = [];
        while (($pass = $other->admit(new Call('GET', 'https://api.example.com/things'))) instanceof Pass) {
            $passes[] = $pass;
        }
        self::assertCount(9, $passes);

        return [$other, $passes];
    }

    public function testAnAwaitedRequestAsksAgainWhileOthersHaveRequestsInFlight(): void
    {
        [$other, $passes] = $this->another();
        $this->server->meanwhile = function () use ($other, $passes): void {
            if (count($this->server->slept) === 2) {
                array_map($other->unsent(...), $passes);
            }
        };
        $promise = $this->client(200)->getAsync('https://api.example.com/things/second');
        self::assertSame([], $this->server->slept, 'nothing sleeps before somebody waits');
        self::assertSame(200, $promise->wait()->getStatusCode());
        self::assertSame([10_000_000, 20_000_000], $this->server->slept);
        self::assertSame([], $this->delays, 'it was sent in the same window');
    }

    public function testAskingAgainIsShort(): void
    {
        [, $passes] = $this->another();
        $promises = [];
        $client = $this->client(200);
        for ($i = 0; $i < 3; $i++) {
            $promises[] = $client->getAsync('https://api.example.com/things/'.$i);
        }
        Utils::unwrap($promises);
        self::assertSame([10_000_000, 20_000_000, 40_000_000], $this->server->slept);
        self::assertCount(9, $passes);
        self::assertNotSame([], $this->delays);
    }

    public function testAnAwaitedRequestSleepsNoLongerThanItMayWait(): void
    {
        [, $passes] = $this->another();
        $promise = $this->client(0.015)->getAsync('https://api.example.com/things/second');
        try {
            $promise->wait();
            self::fail('the budget is in flight');
        } catch (WaitException) {
            self::assertSame([10_000_000, 5_000_000], $this->server->slept);
        }
        self::assertCount(9, $passes);
    }

    public function testNothingIsAskedAgainIfTheBudgetIsCertainlySpent(): void
    {
        $this->pacer = $this->server->pacer(0, new MemoryStore());
        for ($i = 0; $i < 10; $i++) {
            $this->client(200)->get('https://api.example.com/things');
        }
        $this->client(200)->getAsync('https://api.example.com/things')->wait();
        self::assertSame([], $this->server->slept);
        self::assertCount(1, $this->delays);
    }

    public function testARequestThatNobodyWaitsForIsStartedByTheHandlersLoop(): void
    {
        [$other, $passes] = $this->another();
        $this->client(200)->getAsync('https://api.example.com/things/second');
        self::assertCount(1, $this->sent);
        array_map($other->unsent(...), $passes);
        Utils::queue()->run(); // a tick of Guzzle's handler begins with it
        self::assertCount(2, $this->sent);
        self::assertSame([], $this->server->slept);
    }

    public function testARequestWhoseWaitFailedIsNotSent(): void
    {
        [$other, $passes] = $this->another();
        $client = $this->client(200);
        $first = $client->getAsync('https://api.example.com/things/first');
        $second = $client->getAsync('https://api.example.com/things/second');
        $this->server->meanwhile = static function (): void {
            throw new \LogicException('a callback fails');
        };
        try {
            $first->wait();
            self::fail('the callback fails');
        } catch (\LogicException $e) {
            self::assertSame('a callback fails', $e->getMessage());
        }
        $this->server->meanwhile = null;
        array_map($other->unsent(...), $passes);
        self::assertSame(200, $second->wait()->getStatusCode());
        self::assertSame(['/things', '/things/second'], array_map(static fn ($r): string => $r->getUri()->getPath(), $this->sent));
    }
}
