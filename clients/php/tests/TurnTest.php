<?php

declare(strict_types=1);

namespace Weir\Pacer\Tests;

use PHPUnit\Framework\TestCase;
use Weir\Pacer\Call;
use Weir\Pacer\Pacer;
use Weir\Pacer\Pass;
use Weir\Pacer\Turn;
use Weir\Pacer\Wait;
use Weir\Pacer\WaitException;

final class TurnTest extends TestCase
{
    private Server $server;
    private Pacer $pacer;
    private Call $call;

    protected function setUp(): void
    {
        $this->server = new Server();
        $this->pacer = $this->server->pacer();
        $this->call = new Call('GET', 'https://api.example.com/things');
    }

    private function turn(float $maxWait, float $jitter = 0): Turn
    {
        return new Turn($this->pacer, $this->call, $maxWait, null, $jitter, $this->server->time());
    }

    private function send(Turn $turn): ?Wait
    {
        $pass = $turn->enter();

        return $this->pacer->answered($pass, ...$this->server->answer());
    }

    public function testCallsWaitForTheNextWindowAndNoneIsRefused(): void
    {
        foreach ([0, 600, -600] as $ahead) { // a clock that is ten minutes wrong changes nothing
            $this->setUp();
            $this->server->ahead = $ahead * 1_000_000_000;
            for ($i = 0; $i < 35; $i++) {
                self::assertNull($this->send($this->turn(90)));
            }
            self::assertSame(0, $this->server->refused);
            self::assertCount(3, array_filter($this->server->slept, static fn (int $n): bool => $n > 1e9), 'one for each Reset');
        }
    }

    public function testZeroNeverSleeps(): void
    {
        for ($i = 0; $i < 10; $i++) {
            $this->send($this->turn(0));
        }
        try {
            $this->send($this->turn(0));
            self::fail('the budget is spent');
        } catch (WaitException $e) {
            self::assertSame(Wait::SPENT, $e->getReason());
            self::assertSame('api.example.com', $e->getHost());
            self::assertSame('', $e->getLimiter());
            self::assertSame(60, $e->getRetryAfter());
            self::assertSame('2027-01-15T08:01:00', $e->getUntil()->format('Y-m-d\TH:i:s'));
            self::assertStringContainsString('requests to api.example.com: budget spent; come back in ', $e->getMessage());
            self::assertStringContainsString('The request was not sent, for a wait of at most 0 s is allowed', $e->getMessage());
        }
        self::assertSame([], $this->server->slept);
        self::assertSame(0, $this->server->refused);
    }

    public function testAWaitThatIsCertainlyTooLongIsAnErrorAtOnce(): void
    {
        for ($i = 0; $i < 10; $i++) {
            $this->send($this->turn(0));
        }
        try {
            $this->send($this->turn(59));
            self::fail('it would have to wait 60 s');
        } catch (WaitException) {
            self::assertSame([], $this->server->slept);
        }
    }

    public function testAllSleepsTogetherAreNoLongerThanAllowed(): void
    {
        // refused again and again, with a wait each time
        $turn = $this->turn(10, 0.1);
        $passes = 0;
        try {
            for (; ; $passes++) {
                $wait = $this->pacer->answered($turn->enter(), 429, ['Retry-After' => '3']);
                self::assertInstanceOf(Wait::class, $wait);
                $turn->again($wait);
            }
        } catch (WaitException $e) {
            self::assertSame(Wait::REFUSED, $e->getReason());
            self::assertStringContainsString('was not sent again', $e->getMessage());
        }
        self::assertSame(3, $passes);
        self::assertGreaterThanOrEqual(9e9, array_sum($this->server->slept));
        self::assertLessThanOrEqual(10e9, array_sum($this->server->slept));
    }

    public function testAnotherCallsProbeIsNotWaitedForForEver(): void
    {
        $store = new \Weir\Pacer\MemoryStore();
        $clock = fn (): int => $this->server->now;
        $routes = new \Weir\Pacer\Routes([['name' => 'all', 'routes' => ['/*'], 'windows' => ['10 per minute by ip']]]);
        $other = new Pacer($store, $routes, clock: $clock);
        $this->pacer = new Pacer($store, $routes, clock: $clock);
        $probe = $other->admit($this->call);
        self::assertInstanceOf(Pass::class, $probe);
        $this->send($this->turn(60, 0.1));
        self::assertEqualsWithDelta(1e9, array_sum($this->server->slept), 1e6, 'it goes after a second');
        self::assertLessThanOrEqual(200_000_000, max($this->server->slept), 'it looks at the view meanwhile');
        $other->lost($probe);
    }

    public function testTheJitterIsOnlyEverAdded(): void
    {
        for ($i = 0; $i < 10; $i++) {
            $this->send($this->turn(0));
        }
        $left = (1_800_000_060_000_000_000 - $this->server->now);
        $this->send($this->turn(70, 0.1));
        self::assertGreaterThanOrEqual($left, array_sum($this->server->slept));
        self::assertLessThanOrEqual($left + 2e9 + 1e8, array_sum($this->server->slept));
        self::assertSame(0, $this->server->refused);
    }

    public function testAPassThatIsForgottenCountsAsLost(): void
    {
        $this->send($this->turn(0));
        $pass = $this->pacer->admit($this->call);
        self::assertSame(1, $this->pacer->budget($this->call)->inFlight);
        unset($pass);
        self::assertSame(0, $this->pacer->budget($this->call)->inFlight);
        for ($i = 0; $i < 8; $i++) { // the lost one may have been charged until an answer shows it
            $this->send($this->turn(0));
        }
        self::assertSame(9, $this->server->served);
    }
}
