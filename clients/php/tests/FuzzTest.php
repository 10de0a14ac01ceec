<?php

declare(strict_types=1);

namespace Weir\Pacer\Tests;

use PHPUnit\Framework\TestCase;
use Weir\Pacer\Budget;
use Weir\Pacer\Call;
use Weir\Pacer\Family;
use Weir\Pacer\Fields;
use Weir\Pacer\Pacer;
use Weir\Pacer\Pass;
use Weir\Pacer\Routes;
use Weir\Pacer\Store;

/**
 * Whatever a server sends, and whatever a store holds: no error, and no integer that overflows, of
 * which PHP would make a float.
 */
final class FuzzTest extends TestCase
{
    private const VALUES = ['', '0', '1', '-1', '60', ' 60', '1e9', '9223372036854775807', '9223372036854775808', '99999999999999',
        '1800000060', '1800000060.5', '1800000060000', '6m0s', '1h99999999999h', '20ms', 'Fri, 15 Jan 2027 08:00:00 GMT',
        'Thu, 01 Jan 1970 00:00:00 GMT', 'Fri, 31 Dec 9999 23:59:59 GMT', '2027-01-15T08:01:00Z', '0000-00-00T00:00:00Z',
        '9999-12-31T23:59:59+24:00', "\0", "\xff", '"a";r=1;t=2', '"a";r=999999999999999;t=999999999999999', '"a";q=5;w=60',
        'limit=10, remaining=5, reset=60', '10, 10;w=60, 500;w=3600', ',', ';;', '=', 'limit=', '"', '"a"', '"a";r', '2764800', '2764801'];

    private const NAMES = ['Date', 'Age', 'Retry-After', 'X-RateLimit-Limit', 'X-RateLimit-Remaining', 'X-RateLimit-Reset',
        'X-RateLimit-Reset-After', 'RateLimit', 'RateLimit-Policy', 'RateLimit-Limit', 'RateLimit-Remaining', 'RateLimit-Reset',
        'X-RateLimit-Bucket', 'X-RateLimit-Limit-Tokens', 'X-RateLimit-Remaining-Tokens', 'X-RateLimit-Reset-Tokens'];

    protected function setUp(): void
    {
        mt_srand(20271);
    }

    private function fields(int $second): array
    {
        $fields = [];
        for ($n = mt_rand(0, 8); $n > 0; $n--) {
            $value = self::VALUES[array_rand(self::VALUES)];
            $fields[self::NAMES[array_rand(self::NAMES)]] = mt_rand(0, 9) > 0 ? $value : [$value, self::VALUES[array_rand(self::VALUES)]];
        }
        if (mt_rand(0, 1) === 1) { // often enough a budget
            $fields += ['Date' => gmdate('D, d M Y H:i:s', $second).' GMT', 'X-RateLimit-Limit' => self::VALUES[mt_rand(1, 9)],
                'X-RateLimit-Remaining' => self::VALUES[mt_rand(1, 9)], 'X-RateLimit-Reset' => (string) ($second + [1, 60, 2764800][mt_rand(0, 2)])];
        }

        return $fields;
    }

    public function testWhateverAServerSends(): void
    {
        $now = 1_800_000_000_000_000_000;
        $clock = static function () use (&$now): int {
            return $now;
        };
        $several = new Routes([['name' => 'all', 'routes' => ['/*'], 'windows' => ['60 per minute by ip', '1000 per hour by ip'], 'cost' => 3]]);
        $known = 0;
        for ($round = 0; $round < 300; $round++) {
            $p = new Pacer(mt_rand(0, 1) ? null : new \Weir\Pacer\MemoryStore(), mt_rand(0, 1) ? null : $several, clock: $clock);
            $passes = [];
            for ($i = 0; $i < 30; $i++) {
                $now += [0, 1_000_000, 1_000_000_000, 60_000_000_000, 4_000_000_000_000, -2_000_000_000][mt_rand(0, 5)];
                $call = new Call('GET', 'https://api.example.com/'.mt_rand(0, 2).'/'.['a', 'b'][mt_rand(0, 1)]);
                $result = $p->admit($call);
                if ($result instanceof Pass) {
                    $passes[] = $result;
                } else {
                    self::assertGreaterThan(0, $result->again);
                    self::assertLessThanOrEqual(33 * 86400 * 1_000_000_000, $result->again, 'no wait is longer than a window');
                    self::assertNotSame('', $result->message());
                }
                if ($passes !== [] && mt_rand(0, 2) > 0) {
                    $pass = array_splice($passes, mt_rand(0, count($passes) - 1), 1)[0];
                    match (mt_rand(0, 9)) {
                        0 => $p->lost($pass),
                        1 => $p->unsent($pass),
                        default => $p->answered($pass, mt_rand(0, 3) > 0 ? 200 : 429, $this->fields(intdiv($now, 1_000_000_000))),
                    };
                }
                $known += $p->budget($call)->known ? 1 : 0;
            }
        }
        self::assertGreaterThan(500, $known, 'the fields often make a budget');
    }

    public function testWhateverAStoreHolds(): void
    {
        $now = 1_800_000_000_000_000_000;
        $store = new class implements Store {
            public ?string $state = null;

            public function update(string $key, callable $change): void
            {
                $this->state = $change($this->state);
            }
        };
        $p = new Pacer($store, clock: static fn (): int => $now);
        $call = new Call('GET', 'https://api.example.com/things');
        $p->answered($p->admit($call), 200, ['Date' => 'Fri, 15 Jan 2027 08:00:00 GMT', 'X-RateLimit-Limit' => '60',
            'X-RateLimit-Remaining' => '50', 'X-RateLimit-Reset' => '1800000060']);
        $good = $store->state;
        $believed = 0;
        for ($i = 0; $i < 20_000; $i++) {
            $bad = $good;
            for ($n = mt_rand(1, 4); $n > 0; $n--) {
                $bad[mt_rand(0, strlen($bad) - 1)] = chr([0, 1, 127, 128, 255, mt_rand(0, 255)][mt_rand(0, 5)]);
            }
            if (mt_rand(0, 9) === 0) {
                $bad = substr($bad, 0, mt_rand(0, strlen($bad)));
            }
            $believed += Budget::decode($bad) !== null ? 1 : 0;
            $store->state = $bad;
            $result = $p->admit($call);
            if ($result instanceof Pass) {
                $p->answered($result, mt_rand(0, 1) ? 200 : 429, $this->fields(intdiv($now, 1_000_000_000)));
            }
            $p->budget($call);
        }
        self::assertGreaterThan(1000, $believed, 'many are in range');
    }

    public function testTheBudgetsOfManyCallersAreForgottenWhenTheyAreWhole(): void
    {
        $now = 1_800_000_000_000_000_000;
        $p = new Pacer(clock: static function () use (&$now): int {
            return $now;
        });
        $held = $p->admit(new Call('GET', 'https://api.example.com/things', ['Authorization' => 'Bearer held']));
        for ($i = 0; $i < 3000; $i++) {
            $now += 100_000_000;
            $second = intdiv($now, 1_000_000_000);
            $pass = $p->admit(new Call('GET', 'https://api.example.com/things', ['Authorization' => "Bearer $i"]));
            $p->answered($pass, 200, ['Date' => gmdate('D, d M Y H:i:s', $second).' GMT', 'X-RateLimit-Limit' => '60',
                'X-RateLimit-Remaining' => '59', 'X-RateLimit-Reset' => (string) ($second + 60)]);
        }
        $windows = (new \ReflectionProperty($p, 'windows'))->getValue($p);
        self::assertLessThanOrEqual(1024, count($windows));
        self::assertSame(1, $p->budget(new Call('GET', 'https://api.example.com/things', ['Authorization' => 'Bearer held']))->inFlight);
        $p->lost($held);
    }

    public function testAStateOutlivesItsEncoding(): void
    {
        $b = new Budget();
        $b->limit = 60;
        $b->own = 1.5;
        $b->clock->low = -5;
        $b->clock->set = true;
        $b->setFlight(7, 1, 2, 100);
        $f = new Family();
        $f->assign('aaaaaaaa', 'bbbbbbbb', 'cccccccc');
        $again = Budget::decode($b->encode().$f->encode(), $rest);
        self::assertEquals($b, $again);
        self::assertEquals($f, Family::decode($rest));
        self::assertSame('bbbbbbbb', Family::decode($rest)->line('aaaaaaaa'));
        for ($i = 1; $i <= 200; $i++) { // more processes than a state holds: their units stay
            $b->setFlight(100 + $i, 1, 0, 100);
        }
        self::assertSame(201, Budget::decode($b->encode())->inFlight());
        for ($i = 0; $i < 1000; $i++) {
            $f->assign(sprintf('p%07d', $i), sprintf('l%07d', $i), 'nnnnnnnn');
        }
        self::assertLessThan(8000, strlen($b->encode().$f->encode()));
        self::assertCount(32, Family::decode($f->encode())->lines());
    }

    public function testFieldsInAnyLetterCaseAndForm(): void
    {
        self::assertSame(['a-b' => ['1', '2'], 'c' => ['3']], Fields::lower(['A-b' => '1', 'a-B' => ['2'], 'C' => ['3']]));
    }

    public function testManyBudgetsThatCannotBeForgottenAreNotLookedAtWithEachCall(): void
    {
        $looks = 0;
        $p = new Pacer(clock: static function () use (&$looks): int {
            $looks++;

            return 1_800_000_000_000_000_000;
        });
        $fields = ['X-RateLimit-Limit' => '60', 'X-RateLimit-Remaining' => '50', 'X-RateLimit-Reset' => '1800003600'];
        $counts = [];
        for ($i = 0; $i < 1100; $i++) {
            $before = $looks;
            $p->answered($p->admit(new Call('GET', 'https://api.example.com/things', ['Authorization' => "Bearer $i"])), 200, $fields);
            $counts[] = $looks - $before; // forgetting reads the clock once more
        }
        self::assertSame(1, count(array_filter($counts, static fn (int $n): bool => $n !== $counts[0])));
    }
}
