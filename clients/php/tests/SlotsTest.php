<?php

declare(strict_types=1);

namespace Weir\Pacer\Tests;

use GuzzleHttp\Client;
use GuzzleHttp\Promise\Promise;
use GuzzleHttp\Promise\PromiseInterface;
use GuzzleHttp\Promise\Utils;
use Nyholm\Psr7\Request;
use Nyholm\Psr7\Response;
use Nyholm\Psr7\Stream;
use PHPUnit\Framework\TestCase;
use Psr\Http\Client\ClientInterface;
use Psr\Http\Message\RequestInterface;
use Psr\Http\Message\ResponseInterface;
use Symfony\Component\HttpClient\MockHttpClient;
use Symfony\Component\HttpClient\Response\MockResponse;
use Weir\Pacer\Guzzle\PaceMiddleware;
use Weir\Pacer\MemoryStore;
use Weir\Pacer\Pacer;
use Weir\Pacer\Psr18\PacedClient;
use Weir\Pacer\Psr18\WaitException;
use Weir\Pacer\Routes;
use Weir\Pacer\Store;
use Weir\Pacer\Symfony\PacedHttpClient;
use Weir\Pacer\Wait;

/** How long each adapter holds the slot of a call. */
final class SlotsTest extends TestCase
{
    private Server $server;
    private int $inFlight = 0;
    private int $most = 0;

    protected function setUp(): void
    {
        $this->server = new Server(1000);
    }

    private function pacer(int $slots, ?Store $store = null): Pacer
    {
        $routes = new Routes([['name' => 'all', 'routes' => ['/*'], 'windows' => ['1000 per minute by ip+agent'], 'in_flight' => "$slots by ip"]]);

        return new Pacer($store, $routes, clock: fn (): int => $this->server->now);
    }

    public function testAResponseOfPsr18HoldsItsSlotUntilItIsReadOrForgotten(): void
    {
        $inner = new class implements ClientInterface {
            public bool $received = true;

            public function sendRequest(RequestInterface $request): ResponseInterface
            {
                if ($this->received) {
                    return new Response(200, [], 'an answer');
                }
                [$here, $there] = stream_socket_pair(STREAM_PF_UNIX, STREAM_SOCK_STREAM, 0);
                fwrite($there, 'an answer');
                fclose($there);

                return new Response(200, [], Stream::create($here));
            }
        };
        $client = new PacedClient($inner, $this->pacer(1), 0, time: $this->server->time());
        $request = new Request('GET', 'https://api.example.com/things');
        $received = [$client->sendRequest($request), $client->sendRequest($request)]; // each is in memory
        $inner->received = false;
        $ends = [
            'read to its end' => static function (ResponseInterface $r): void {
                for ($text = ''; !$r->getBody()->eof(); $text .= $r->getBody()->read(4));
                self::assertSame('an answer', $text);
            },
            'read as a whole' => static fn (ResponseInterface $r) => self::assertSame('an answer', (string) $r->getBody()->getContents()),
            'closed' => static fn (ResponseInterface $r) => $r->getBody()->close(),
            'detached' => static fn (ResponseInterface $r) => $r->getBody()->detach(),
            'forgotten' => static fn () => null,
        ];
        foreach ($ends as $how => $end) {
            $response = $client->sendRequest($request);
            try {
                $client->sendRequest($request);
                self::fail("before it was $how");
            } catch (WaitException $e) {
                self::assertSame(Wait::SLOTS, $e->getReason());
            }
            $end($response);
            if ($how === 'forgotten') {
                unset($response);
            }
            $response = $client->sendRequest($request);
            unset($response);
        }
        self::assertCount(2, $received);
    }

    public static function stores(): iterable
    {
        yield 'alone' => [null];
        yield 'with a store' => [new MemoryStore()];
    }

    /** @dataProvider stores */
    public function testGuzzleSendsNoMoreAtATime(?Store $store): void
    {
        $handler = function (RequestInterface $request): PromiseInterface {
            $this->most = max($this->most, ++$this->inFlight);
            $promise = new Promise(function () use (&$promise): void {
                [$status, $fields] = $this->server->answer();
                $this->inFlight--;
                $promise->resolve(new Response($status, $fields, 'an answer'));
            });

            return $promise;
        };
        $client = new Client(['handler' => (new PaceMiddleware($this->pacer(2, $store), 60, jitter: 0, time: $this->server->time()))($handler)]);
        $promises = [];
        for ($i = 0; $i < 12; $i++) { // of three windows, so of three queues
            $promises[] = $client->getAsync('https://api.example.com/things', ['headers' => ['X-Agent-Id' => 'agent '.$i % 3]]);
        }
        foreach (array_reverse(Utils::unwrap($promises)) as $response) {
            self::assertSame(200, $response->getStatusCode());
        }
        self::assertSame([12, 2, 0], [$this->server->served, $this->most, $this->inFlight]);
    }

    /** @dataProvider stores */
    public function testSymfonySendsNoMoreAtATime(?Store $store): void
    {
        $mock = new MockHttpClient(function (): MockResponse {
            $this->most = max($this->most, ++$this->inFlight);
            [$status, $fields] = $this->server->answer();

            return new MockResponse(['an ', 'answer'], ['http_code' => $status, 'response_headers' => $fields]);
        });
        $client = new PacedHttpClient($mock, $this->pacer(2, $store), 60, jitter: 0, time: $this->server->time());
        $responses = [];
        for ($i = 0; $i < 9; $i++) {
            $responses[] = $client->request('GET', 'https://api.example.com/things', ['headers' => ['X-Agent-Id' => 'agent '.$i % 3]]);
        }
        foreach ($client->stream($responses) as $chunk) {
            if ($chunk->isLast()) {
                $this->inFlight--;
            }
        }
        self::assertSame([9, 2, 0], [$this->server->served, $this->most, $this->inFlight]);
        for ($i = 0; $i < 5; $i++) {
            $response = $client->request('GET', 'https://api.example.com/things');
            $i % 2 === 0 ? self::assertSame('an answer', $response->getContent())
                : self::assertSame('an answer', stream_get_contents($response->toStream()));
        }
        $kept = $client->request('GET', 'https://api.example.com/things');
        $client->request('GET', 'https://api.example.com/things')->cancel();
        self::assertSame('an answer', $kept->getContent());
        self::assertSame(16, $this->server->served);
    }
}
