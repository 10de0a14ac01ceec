<?php

declare(strict_types=1);

namespace Weir\Pacer\Tests;

use PHPUnit\Framework\TestCase;
use Weir\Pacer\Call;
use Weir\Pacer\MemoryStore;
use Weir\Pacer\Pacer;
use Weir\Pacer\Pass;
use Weir\Pacer\Routes;
use Weir\Pacer\Wait;

/** What comes back after the answers, and how many calls are in flight, over several processes. */
final class SettlingTest extends TestCase
{
    private static function routes(array $more): Routes
    {
        return new Routes([['name' => 'chat', 'routes' => ['/v1/chat']] + $more]);
    }

    private static function chat(string $window): Routes
    {
        return self::routes(['windows' => [$window], 'cost' => ['reserve' => 4000, 'from' => 'json:cost']]);
    }

    public static function heads(): iterable
    {
        yield 'the head of an answer is seen first' => [true];
        yield 'an answer is seen when it has ended' => [false];
    }

    /** @dataProvider heads */
    public function testWhatComesBackIsUsedBeforeTheReset(bool $headFirst): void
    {
        $s = new SettlingServer(50_000, 86400, 4000, static fn (int $i): int => 80 + $i % 5 * 10, static fn (): float => 1);
        $s->call(300, 12, self::chat('50000 per day by ip'), $headFirst);
        self::assertSame([300, 0], [$s->served, $s->refused]);
        self::assertLessThan(600, $s->took, 'they fit the day, so none waits for its end');
    }

    /** @dataProvider heads */
    public function testCallsThatKeepTheirChargeWaitForTheReset(bool $headFirst): void
    {
        $s = new SettlingServer(100_000, 60, 4000, static fn (): int => 4000, static fn (): float => 1);
        $s->call(60, 10, self::chat('100000 per minute by ip'), $headFirst);
        self::assertSame(60, $s->served);
        self::assertLessThanOrEqual(1, $s->refused, 'the first calls can be expected to give something back');
        self::assertLessThan(180, $s->took, 'a window has 25 of them');
    }

    /** No two calls fit into a window, so that no two responses can be compared. */
    public function testWhatNoWindowHasShownAgainIsDoubted(): void
    {
        $s = new SettlingServer(4464, 10, 4000, static fn (int $i): int => $i < 3 ? 4000 : 80, static fn (): float => 0.001);
        $s->call(150, 1, self::chat('4464 per 10 seconds by ip'), true);
        self::assertSame(150, $s->served);
        self::assertLessThan(1000, $s->took, 'six of them fit into a window, when they are known');
    }

    /** @dataProvider heads */
    public function testLongAnswersOfLivingProcessesAreNotForgotten(bool $headFirst): void
    {
        $s = new SettlingServer(100_000, 86400, 4000, static fn (): int => 100, static fn (): float => 100);
        $s->call(27, 27, self::chat('100000 per day by ip'), $headFirst);
        self::assertSame([27, 0], [$s->served, $s->refused]);
        self::assertLessThan(86400, $s->took);
    }

    /** @dataProvider heads */
    public function testCallsOfAnyCostAreRarelyRefusedForWhatTheyExpect(bool $headFirst): void
    {
        foreach ([1000, 4000] as $most) {
            $served = $refused = 0;
            foreach ([1, 2] as $seed) {
                mt_srand($seed * $most);
                $s = new SettlingServer(40_000, 60, 4000, static fn (): int => mt_rand(0, $most - 1), static fn (): float => mt_rand(0, 3000) / 1000);
                $s->call(60, 8, self::chat('40000 per minute by ip'), $headFirst);
                [$served, $refused] = [$served + $s->served, $refused + $s->refused];
            }
            self::assertSame(120, $served);
            self::assertLessThanOrEqual($served / ($headFirst ? 100 : 50), $refused, "costs up to $most");
        }
    }

    /** @dataProvider heads */
    public function testCallsThatAreNotCountedComeBack(bool $headFirst): void
    {
        $s = new SettlingServer(5, 900, 1, static fn (): int => 0, static fn (): float => 0.1, inHead: true);
        $s->call(100, 8, self::routes(['windows' => ['5 per 15 minutes by ip'], 'count' => ['status' => [401, 403]]]), $headFirst);
        self::assertSame([100, 0], [$s->served, $s->refused]);
        self::assertLessThan(60, $s->took);
    }

    /** @dataProvider heads */
    public function testWhatTheHeadOfAnAnswerIncludesIsNotExpectedToComeBackAgain(bool $headFirst): void
    {
        $s = new SettlingServer(9_000, 10, 4000, static fn (int $i): int => $i * 1237 % 4001, static fn (): float => 1, inHead: true);
        $s->call(40, 6, self::routes(['windows' => ['9000 per 10 seconds by ip'], 'cost' => ['reserve' => 4000, 'from' => 'header:X-Cost']]), $headFirst);
        self::assertSame([40, 0], [$s->served, $s->refused]);
    }

    /** @dataProvider heads */
    public function testNeverMoreCallsInFlightThanTheRoutesAllow(bool $headFirst): void
    {
        $s = new SettlingServer(100_000, 86400, 1, static fn (): int => 1, static fn (): float => 1, 10);
        $s->call(100, 24, self::routes(['windows' => ['100000 requests per day by ip'], 'in_flight' => '10 by ip']), $headFirst);
        self::assertSame([100, 0, 10], [$s->served, $s->refused, $s->most]);
        self::assertLessThan(15, $s->took, '100 calls of a second, 10 at a time');
    }

    public function testWithoutAStoreAPacerHoldsItsOwnSlots(): void
    {
        $p = new Pacer(routes: self::routes(['in_flight' => '2 by token']));
        $call = new Call('POST', 'http://api.example.com/v1/chat', ['Authorization' => 'Bearer wpt_one_secret']);
        $passes = [$p->admit($call), $p->admit($call)];
        self::assertContainsOnlyInstancesOf(Pass::class, $passes);
        $wait = $p->admit($call);
        self::assertInstanceOf(Wait::class, $wait);
        self::assertSame([Wait::SLOTS, 1], [$wait->reason, $wait->retryAfter()]);
        self::assertStringContainsString('too many calls in flight', $wait->message());
        self::assertInstanceOf(Pass::class, $p->admit(new Call('POST', 'http://api.example.com/v1/chat', ['Authorization' => 'Bearer wpt_two_secret'])));
        self::assertFalse($p->budget($call)->known);
        $p->began($passes[0], 200, []);
        self::assertInstanceOf(Wait::class, $p->admit($call), 'its answer has not ended');
        $p->ended($passes[0]);
        $p->ended($passes[0]);
        $third = $p->admit($call);
        self::assertInstanceOf(Pass::class, $third);
        self::assertInstanceOf(Wait::class, $p->admit($call), 'an end counts once');
        $p->lost($third);
        $p->unsent($passes[1]);
        self::assertInstanceOf(Pass::class, $a = $p->admit($call));
        self::assertInstanceOf(Pass::class, $b = $p->admit($call));
        unset($a);
        self::assertInstanceOf(Pass::class, $p->admit($call), 'a pass that is forgotten is lost');
    }

    public function testACallThatWaitsForItsBudgetHoldsNoSlot(): void
    {
        $now = 1_800_000_000_000_000_000;
        $p = new Pacer(new MemoryStore(), self::routes(['windows' => ['1 per minute by ip'], 'in_flight' => '1 by ip']), clock: static function () use (&$now): int {
            return $now;
        });
        $call = new Call('POST', 'http://api.example.com/v1/chat');
        $pass = $p->admit($call);
        $p->answered($pass, 200, ['Date' => 'Fri, 15 Jan 2027 08:00:00 GMT', 'X-RateLimit-Limit' => '1', 'X-RateLimit-Remaining' => '0', 'X-RateLimit-Reset' => '1800000060']);
        self::assertSame(Wait::SPENT, $p->admit($call)->reason);
        $now += 61_000_000_000;
        self::assertInstanceOf(Pass::class, $p->admit($call));
    }

    public function testA429OfTheLimitInFlightSaysNothingOfTheWindows(): void
    {
        $now = 1_800_000_000_000_000_000;
        $p = new Pacer(new MemoryStore(), self::routes(['windows' => ['60 per minute by ip'], 'in_flight' => '3 by ip']), clock: static function () use (&$now): int {
            return $now;
        });
        $call = new Call('POST', 'http://api.example.com/v1/chat');
        $wait = $p->answered($p->admit($call), 429, ['Date' => 'Fri, 15 Jan 2027 08:00:00 GMT', 'X-RateLimit-Limit' => '3',
            'X-RateLimit-Remaining' => '0', 'X-RateLimit-Reset' => '1800000001', 'Retry-After' => '1']);
        self::assertSame(1, $wait->retryAfter());
        self::assertFalse($p->budget($call)->known);
    }

    public function testAStoreThatFailsHasNoSlots(): void
    {
        $store = new class implements \Weir\Pacer\Store {
            public bool $fails = false;
            private MemoryStore $states;

            public function __construct()
            {
                $this->states = new MemoryStore();
            }

            public function update(string $key, callable $change): void
            {
                if ($this->fails) {
                    throw new \Weir\Pacer\StoreException('it fails');
                }
                $this->states->update($key, $change);
            }
        };
        $routes = self::routes(['in_flight' => '1 by ip']);
        $call = new Call('POST', 'http://api.example.com/v1/chat');
        $p = new Pacer($store, $routes);
        $pass = $p->admit($call);
        $store->fails = true;
        $p->answered($pass, 200, []);
        self::assertSame(Wait::SLOTS, $p->admit($call)->reason, 'others may hold it');
        $store->fails = false;
        self::assertSame(Wait::SLOTS, (new Pacer($store, $routes))->admit($call)->reason, 'the store does not know');
        unset($p, $pass);
        self::assertInstanceOf(Pass::class, (new Pacer($store, $routes))->admit($call), 'it was written at the end');
    }

    public function testAStoreThatFailedIsUsedAgainAfterTheClockWasSetBack(): void
    {
        $store = new class implements \Weir\Pacer\Store {
            public bool $fails = true;

            public function update(string $key, callable $change): void
            {
                if ($this->fails) {
                    throw new \Weir\Pacer\StoreException('it fails');
                }
                $change(null);
            }
        };
        $now = 1_800_000_000_000_000_000;
        $p = new Pacer($store, self::routes(['in_flight' => '1 by ip']), clock: static function () use (&$now): int {
            return $now;
        });
        $call = new Call('POST', 'http://api.example.com/v1/chat');
        self::assertStringContainsString('the store fails (it fails)', $p->admit($call)->message());
        $store->fails = false;
        $now -= 86_400_000_000_000;
        self::assertInstanceOf(Pass::class, $p->admit($call));
    }

    public function testADirectoryThatCannotBeMadeIsNamedByTheWait(): void
    {
        $p = new Pacer(new \Weir\Pacer\FileStore('/proc/weir/view'), self::routes(['in_flight' => '1 by ip']));
        $call = new Call('POST', 'http://api.example.com/v1/chat');
        foreach (['at once', 'also in the second in which it is not tried'] as $when) {
            $wait = $p->admit($call);
            self::assertSame(Wait::SLOTS, $wait->reason, $when);
            self::assertStringContainsString('because the store fails (make the directory /proc/weir: ', $wait->message(), $when);
        }
    }

    public function testAfterTheClockWasSetBackSlotsOfUnknownProcessesAreFreeInTime(): void
    {
        $now = 1_800_000_000_000_000_000;
        $slots = new \Weir\Pacer\Slots('key', 1);
        $state = pack('PPP', 7, 1, $now + 86_400_000_000_000).str_repeat("\0", 20); // of another machine
        $state = $slots->next($state, 8, 1, $now, $held);
        self::assertSame(0, $held, 'that process may live');
        $slots->next($state, 8, 1, $now + 601_000_000_000, $held);
        self::assertSame(1, $held, 'ten minutes after the clock was set');
    }

    public function testABrokenStateIsNoErrorAndGivesNoSlotAway(): void
    {
        mt_srand(1);
        $bytes = static fn (int $n): string => implode('', array_map(static fn (): string => chr(mt_rand(0, 3) === 0 ? mt_rand(0, 255) : mt_rand(0, 1) * 255), $n > 0 ? range(1, $n) : []));
        $now = 1_800_000_000_000_000_000;
        for ($i = 0; $i < 500; $i++) {
            $slots = new \Weir\Pacer\Slots('key', 2);
            $state = $bytes(44 * mt_rand(0, 3) + mt_rand(0, 2));
            $slots->next($state, 7, 3, $now, $held);
            self::assertSame(0, $held, 'three of two');
            [$ended, $processes] = [mt_rand(0, 3), mt_rand(0, 3)];
            $s = \Weir\Pacer\Settling::decode(pack('CC', $ended, $processes).$bytes(16 + 16 * $ended + 44 * $processes));
            $s->set(7, 1, 1, $now);
            $s->end($b = new \Weir\Pacer\Budget(), 1);
            self::assertGreaterThanOrEqual(0, $s->back($b));
            self::assertGreaterThanOrEqual(1, $s->most($b));
            self::assertEquals($s, \Weir\Pacer\Settling::decode($s->encode()));
        }
    }
}
