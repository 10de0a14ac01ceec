<?php

declare(strict_types=1);

namespace Weir\Pacer\Tests;

use GuzzleHttp\Psr7\NoSeekStream;
use Nyholm\Psr7\Request;
use Nyholm\Psr7\Response;
use Nyholm\Psr7\Stream;
use PHPUnit\Framework\TestCase;
use Psr\Http\Client\ClientExceptionInterface;
use Psr\Http\Client\ClientInterface;
use Psr\Http\Client\NetworkExceptionInterface;
use Psr\Http\Message\RequestInterface;
use Psr\Http\Message\ResponseInterface;
use Weir\Pacer\Call;
use Weir\Pacer\Psr18\PacedClient;
use Weir\Pacer\Psr18\WaitException;
use Weir\Pacer\Wait;

final class Psr18Test extends TestCase
{
    private Server $server;

    protected function setUp(): void
    {
        $this->server = new Server();
    }

    private function client(?\Closure $send = null): ClientInterface
    {
        return new class($send ?? fn (RequestInterface $r): ResponseInterface => $this->respond($r)) implements ClientInterface {
            public function __construct(private \Closure $send)
            {
            }

            public function sendRequest(RequestInterface $request): ResponseInterface
            {
                return ($this->send)($request);
            }
        };
    }

    private function respond(RequestInterface $r): ResponseInterface
    {
        [$status, $fields] = $this->server->answer($r->getBody()->getContents());

        return new Response($status, $fields);
    }

    private function paced(float $maxWait, ?ClientInterface $client = null, mixed ...$more): PacedClient
    {
        return new PacedClient($client ?? $this->client(), $this->server->pacer(), $maxWait, ...$more, jitter: 0, time: $this->server->time());
    }

    public function testRequestsWaitForBudget(): void
    {
        $waits = [];
        $paced = $this->paced(90, null, onWait: static function (Wait $w) use (&$waits): void {
            $waits[] = $w->reason;
        });
        for ($i = 0; $i < 25; $i++) {
            self::assertSame(200, $paced->sendRequest(new Request('GET', 'https://api.example.com/things'))->getStatusCode());
        }
        self::assertSame(0, $this->server->refused);
        self::assertSame([Wait::SPENT, Wait::SPENT], $waits);
    }

    public function testInAPageViewTheErrorSaysWhenToComeBack(): void
    {
        $paced = $this->paced(0);
        for ($i = 0; $i < 10; $i++) {
            $paced->sendRequest(new Request('GET', 'https://api.example.com/things'));
        }
        try {
            $paced->sendRequest(new Request('GET', 'https://api.example.com/things'));
            self::fail('the budget is spent');
        } catch (WaitException $e) {
            self::assertInstanceOf(ClientExceptionInterface::class, $e);
            self::assertInstanceOf(\Weir\Pacer\WaitException::class, $e);
            self::assertSame(60, $e->getRetryAfter());
        }
        self::assertSame([], $this->server->slept);
    }

    public function testABodyIsSentAgainFromWhereItBegan(): void
    {
        $this->server->spend(10); // somebody else has
        $body = Stream::create('skipped, then sent');
        $body->seek(9);
        $response = $this->paced(90)->sendRequest(new Request('POST', 'https://api.example.com/things', [], $body));
        self::assertSame(200, $response->getStatusCode());
        self::assertSame([1, ['then sent']], [$this->server->refused, $this->server->bodies]);
    }

    public function testThe429OfABodyThatCannotBeRewoundIsReturned(): void
    {
        $this->server->spend(10);
        $body = new NoSeekStream(\GuzzleHttp\Psr7\Utils::streamFor('once'));
        $response = $this->paced(90)->sendRequest(new Request('POST', 'https://api.example.com/things', [], $body));
        self::assertSame(429, $response->getStatusCode());
        self::assertSame([], $this->server->slept);
    }

    public function testA429WithoutAnyTimeIsReturned(): void
    {
        $sent = 0;
        $client = $this->client(static function () use (&$sent): ResponseInterface {
            $sent++;

            return new Response(429);
        });
        self::assertSame(429, $this->paced(90, $client)->sendRequest(new Request('GET', 'https://api.example.com/things'))->getStatusCode());
        self::assertSame(1, $sent);
    }

    public function testA429WithADateIsSentAgainThen(): void
    {
        $answers = [
            new Response(429, ['Date' => 'Fri, 15 Jan 2027 08:00:00 GMT', 'Retry-After' => 'Fri, 15 Jan 2027 08:00:07 GMT']),
            new Response(204),
        ];
        $client = $this->client(static function () use (&$answers): ResponseInterface {
            return array_shift($answers);
        });
        self::assertSame(204, $this->paced(90, $client)->sendRequest(new Request('GET', 'https://api.example.com/things'))->getStatusCode());
        self::assertEqualsWithDelta(7e9, array_sum($this->server->slept), 1e6);
    }

    public function testRetriesAreBounded(): void
    {
        $sent = 0;
        $client = $this->client(static function () use (&$sent): ResponseInterface {
            $sent++;

            return new Response(429, ['Retry-After' => '1']);
        });
        self::assertSame(429, $this->paced(3600, $client, retries: 3)->sendRequest(new Request('GET', 'https://api.example.com/things'))->getStatusCode());
        self::assertSame(4, $sent);
    }

    public function testErrorsAreReturnedAsTheyAreAndCountAsLost(): void
    {
        $error = new class('gone') extends \RuntimeException implements NetworkExceptionInterface {
            public function getRequest(): RequestInterface
            {
                return new Request('GET', '/');
            }
        };
        $pacer = $this->server->pacer();
        $call = new Call('GET', 'https://api.example.com/things');
        (new PacedClient($this->client(), $pacer, 0))->sendRequest(new Request('GET', 'https://api.example.com/things'));
        $paced = new PacedClient($this->client(static fn () => throw $error), $pacer, 0);
        try {
            $paced->sendRequest(new Request('GET', 'https://api.example.com/things'));
            self::fail('there is no answer');
        } catch (NetworkExceptionInterface $e) {
            self::assertSame($error, $e);
        }
        self::assertSame(0, $pacer->budget($call)->inFlight);
    }
}
