<?php

declare(strict_types=1);

namespace Weir\Pacer\Tests;

use PHPUnit\Framework\TestCase;
use Symfony\Component\HttpClient\MockHttpClient;
use Symfony\Component\HttpClient\Response\MockResponse;
use Symfony\Contracts\HttpClient\Exception\ClientExceptionInterface;
use Symfony\Contracts\HttpClient\Exception\TransportExceptionInterface;
use Weir\Pacer\Call;
use Weir\Pacer\Pacer;
use Weir\Pacer\Symfony\PacedHttpClient;
use Weir\Pacer\Symfony\WaitException;

final class SymfonyTest extends TestCase
{
    private Server $server;
    private Pacer $pacer;
    /** @var list<array{string, string, array}> */
    private array $sent = [];

    protected function setUp(): void
    {
        $this->server = new Server();
        $this->pacer = $this->server->pacer();
    }

    private function client(float $maxWait, ?callable $factory = null, int $retries = 10): PacedHttpClient
    {
        $mock = new MockHttpClient($factory ?? function (string $method, string $url, array $options): MockResponse {
            $this->sent[] = [$method, $url, $options];
            $body = $options['body'] ?? '';
            if (is_resource($body)) {
                $body = stream_get_contents($body);
            } elseif ($body instanceof \Closure) {
                for ($text = ''; ($part = $body(8192)) !== ''; $text .= $part);
                $body = $text;
            }
            [$status, $fields] = $this->server->answer($body);

            return new MockResponse(['a ', 'body'], ['http_code' => $status, 'response_headers' => $fields]);
        });

        return new PacedHttpClient($mock, $this->pacer, $maxWait, $retries, jitter: 0, time: $this->server->time());
    }

    public function testRequestsWaitForBudget(): void
    {
        $client = $this->client(90);
        for ($i = 0; $i < 25; $i++) {
            $response = $client->request('GET', 'https://api.example.com/things');
            self::assertSame(200, $response->getStatusCode());
            self::assertSame('a body', $response->getContent());
        }
        self::assertSame([25, 0], [$this->server->served, $this->server->refused]);
        self::assertCount(2, array_filter($this->server->slept, static fn (int $n): bool => $n > 1e9), 'one for each Reset');
    }

    public function testConcurrentResponsesAreStreamed(): void
    {
        $client = $this->client(200);
        $client->request('GET', 'https://api.example.com/things')->getContent();
        $responses = [];
        for ($i = 0; $i < 24; $i++) {
            $responses[$i] = $client->request('GET', 'https://api.example.com/things', ['user_data' => $i]);
        }
        self::assertSame(10, $this->server->served, 'what the window has left');
        $contents = [];
        $firsts = 0;
        foreach ($client->stream($responses) as $response => $chunk) {
            if ($chunk->isFirst()) {
                $firsts++;
                self::assertSame(200, $response->getStatusCode());
            }
            $i = $response->getInfo('user_data');
            $contents[$i] = ($contents[$i] ?? '').$chunk->getContent();
        }
        ksort($contents);
        self::assertSame(array_fill(0, 24, 'a body'), $contents);
        self::assertSame(24, $firsts);
        self::assertSame([25, 0], [$this->server->served, $this->server->refused]);
    }

    public function testResponsesThatAreReadInAnotherOrderAllCome(): void
    {
        $client = $this->client(200);
        $responses = [];
        for ($i = 0; $i < 15; $i++) {
            $responses[] = $client->request('GET', 'https://api.example.com/things');
        }
        foreach (array_reverse($responses) as $response) {
            self::assertSame('a body', $response->getContent());
        }
        self::assertSame(15, $this->server->served);
    }

    public function testZeroNeverWaits(): void
    {
        $client = $this->client(0);
        for ($i = 0; $i < 10; $i++) {
            $client->request('GET', 'https://api.example.com/things')->getContent();
        }
        try {
            $client->request('GET', 'https://api.example.com/things');
            self::fail('the budget is spent');
        } catch (WaitException $e) {
            self::assertInstanceOf(TransportExceptionInterface::class, $e);
            self::assertSame(60, $e->getRetryAfter());
        }
        self::assertSame([], $this->server->slept);
        self::assertCount(10, $this->sent);
    }

    public function testAWaitThatIsTooLongIsAnError(): void
    {
        $client = $this->client(30);
        for ($i = 0; $i < 10; $i++) {
            $client->request('GET', 'https://api.example.com/things')->getContent();
        }
        $this->expectException(WaitException::class);
        $client->request('GET', 'https://api.example.com/things')->getContent();
    }

    public function testA429ThatWouldWaitTooLongIsAnErrorInAStream(): void
    {
        $this->server->spend(10);
        $client = $this->client(30);
        $response = $client->request('GET', 'https://api.example.com/things');
        try {
            foreach ($client->stream($response) as $chunk) {
                $chunk->isFirst();
            }
            self::fail('it is refused for a minute');
        } catch (TransportExceptionInterface $e) {
            self::assertInstanceOf(WaitException::class, $e->getPrevious());
        }
        try {
            $response->getStatusCode();
            self::fail('it is refused for a minute');
        } catch (WaitException $e) {
            self::assertSame('refused', $e->getReason());
        }
    }

    public static function bodies(): iterable
    {
        $file = tmpfile();
        fwrite($file, 'skipped, then sent');
        fseek($file, 9);
        yield 'text' => [['body' => 'then sent'], 'then sent'];
        yield 'form' => [['body' => ['a' => 'b']], 'a=b'];
        yield 'json' => [['json' => ['a' => 'b']], '{"a":"b"}'];
        yield 'file' => [['body' => $file], 'then sent'];
    }

    /** @dataProvider bodies */
    public function testABodyIsSentAgainFromWhereItBegan(array $options, string $body): void
    {
        $this->server->spend(10);
        $response = $this->client(90)->request('POST', 'https://api.example.com/things', $options);
        self::assertSame(200, $response->getStatusCode());
        self::assertSame([1, [$body]], [$this->server->refused, $this->server->bodies]);
    }

    public static function streams(): iterable
    {
        yield 'a function' => [static function (): string {
            static $parts = ['once'];

            return array_shift($parts) ?? '';
        }];
        yield 'a generator' => [(static fn () => yield 'once')()];
    }

    /** @dataProvider streams */
    public function testThe429OfABodyThatCannotBeSentAgainIsReturned(mixed $body): void
    {
        $this->server->spend(10);
        $response = $this->client(90)->request('POST', 'https://api.example.com/things', ['body' => $body]);
        self::assertSame(429, $response->getStatusCode());
        self::assertSame([], $this->server->slept);
        $this->expectException(ClientExceptionInterface::class);
        $response->getContent();
    }

    public function testTheCredentialIsFoundInAllOptions(): void
    {
        $all = [
            ['headers' => ['Authorization' => 'Bearer wpt_one_secret']],
            ['headers' => ['authorization' => ['Bearer wpt_one_secret']]],
            ['headers' => ['Authorization: Bearer wpt_one_secret']],
            ['auth_bearer' => 'wpt_one_secret'],
        ];
        $want = $this->pacer->queue(new Call('GET', 'https://api.example.com/v1/wp/x', ['Authorization' => 'Bearer wpt_one_secret']));
        $options = $all[1] + ['base_uri' => 'https://api.example.com/v1/'];
        foreach ($all as $one) {
            $sending = new \Weir\Pacer\Symfony\Sending('GET', 'https://api.example.com/v1/wp/x', $one, [], 0);
            self::assertSame($want, $this->pacer->queue($sending->call));
            $sending = new \Weir\Pacer\Symfony\Sending('GET', 'wp/x', [], $one + $options, 0);
            self::assertSame($want, $this->pacer->queue($sending->call));
        }
        $sending = new \Weir\Pacer\Symfony\Sending('GET', '/v1/wp/x', $options, [], 0);
        self::assertSame($want, $this->pacer->queue($sending->call));
    }

    public function testARedirectToAnotherHostSaysNothingOfThisBudget(): void
    {
        $mock = static fn () => new MockResponse('', ['http_code' => 200]);
        $pass = new \ReflectionMethod(PacedHttpClient::class, 'firstHop');
        $inner = (new MockHttpClient($mock))->request('GET', 'https://api.example.com/things');
        self::assertSame([200, [], false], $pass->invoke(null, $inner));
        $inner = $this->createMock(\Symfony\Contracts\HttpClient\ResponseInterface::class);
        $inner->method('getInfo')->willReturn(['HTTP/1.1 100 Continue', 'HTTP/1.1 302 Found', 'X-RateLimit-Remaining: 7',
            'HTTP/2 429', 'X-RateLimit-Remaining: 0', 'Retry-After: 60']);
        self::assertSame([302, ['x-ratelimit-remaining' => ['7']], true], $pass->invoke(null, $inner));
    }

    public function testARequestWhoseResponseNobodyReadsIsSent(): void
    {
        $client = $this->client(90);
        for ($i = 0; $i < 12; $i++) {
            $client->request('POST', 'https://api.example.com/things');
        }
        self::assertSame(12, $this->server->served);
        $this->expectException(\Symfony\Contracts\HttpClient\Exception\HttpExceptionInterface::class);
        $this->client(90, static fn () => new MockResponse('', ['http_code' => 500]))->request('GET', 'https://api.example.com/things');
    }

    public function testACanceledResponseLeavesTheQueueAndItsSlot(): void
    {
        $client = $this->client(90);
        for ($i = 0; $i < 10; $i++) {
            $client->request('GET', 'https://api.example.com/things')->getContent();
        }
        $waiting = $client->request('GET', 'https://api.example.com/things');
        $waiting->cancel();
        self::assertSame(10, $this->server->served);
        self::assertTrue($waiting->getInfo('canceled'));
        $this->expectException(TransportExceptionInterface::class);
        $waiting->getStatusCode();
    }

    public function testErrorsAreReturnedAsTheyAre(): void
    {
        $client = $this->client(0, static fn () => new MockResponse('', ['error' => 'gone']));
        try {
            $client->request('GET', 'https://api.example.com/things')->getStatusCode();
            self::fail('there is no answer');
        } catch (TransportExceptionInterface $e) {
            self::assertSame('gone', $e->getMessage());
        }
        self::assertSame(0, $this->pacer->budget(new Call('GET', 'https://api.example.com/things'))->inFlight);
    }

    public function testARequestKeepsTheOptionsOfItsClient(): void
    {
        $client = $this->client(200);
        for ($i = 0; $i < 10; $i++) {
            $client->request('GET', 'https://api.example.com/things')->getContent();
        }
        $this->sent = [];
        $one = $client->withOptions(['headers' => ['X-Tenant' => 'one']])->request('GET', 'https://api.example.com/things');
        $two = $client->withOptions(['headers' => ['X-Tenant' => 'two']])->request('GET', 'https://api.example.com/things');
        $two->getContent(); // it is behind the other in the queue
        $one->getContent();
        self::assertSame(
            [['X-Tenant: one'], ['X-Tenant: two']],
            array_map(static fn (array $sent): array => $sent[2]['normalized_headers']['x-tenant'], $this->sent),
        );
    }
}
