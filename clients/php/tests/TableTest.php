<?php

declare(strict_types=1);

namespace Weir\Pacer\Tests;

use PHPUnit\Framework\TestCase;
use Weir\Pacer\Answer;
use Weir\Pacer\Call;
use Weir\Pacer\Fields;
use Weir\Pacer\MemoryStore;
use Weir\Pacer\Pacer;
use Weir\Pacer\Pass;
use Weir\Pacer\Routes;
use Weir\Pacer\Wait;

/** Runs the tables of pacer/testdata, which hold the clients in all languages equal. */
final class TableTest extends TestCase
{
    /** Fri, 15 Jan 2027 08:00:00 GMT, in milliseconds. */
    private const CLOCK = 1_800_000_000_000;

    /** @dataProvider timelines */
    public function testTimeline(array $of): void
    {
        $this->play($of, false);
    }

    /**
     * One process decides the same with a view in a store.
     *
     * @dataProvider timelines
     */
    public function testTimelineInAStore(array $of): void
    {
        $this->play($of, true);
    }

    public static function timelines(): iterable
    {
        foreach (['timelines.json', 'generated.json'] as $file) {
            foreach (self::rows($file) as $of) {
                yield $of['name'] => [$of];
            }
        }
    }

    private function play(array $of, bool $shared): void
    {
        $at = 0;
        $clock = static function () use ($of, &$at): int {
            return (($of['clock'] ?? self::CLOCK) + $at) * 1_000_000;
        };
        $routes = null;
        if (($of['windows'] ?? []) !== []) {
            $windows = array_map(
                static fn (array $w): string => "{$w['limit']} per {$w['seconds']} seconds by token or ip",
                $of['windows'],
            );
            $routes = new Routes([['name' => 'table', 'routes' => ['/things'], 'windows' => $windows, 'cost' => $of['cost'] ?? 1]]);
        }
        $shared = $shared || array_filter(array_column($of['steps'], 'process')) !== [];
        $store = $shared ? new MemoryStore() : null;
        $processes = $passes = [];
        foreach ($of['steps'] as $i => $step) {
            $at = $step['at'];
            $p = $processes[$step['process'] ?? 0] ??= new Pacer($store, $routes, $of['threshold'] ?? null, clock: $clock);
            $call = new Call('GET', 'http://api.example.com'.($step['path'] ?? '/things'), ['Authorization' => 'Bearer wpt_abc_def']);
            $where = sprintf('step %d, at %d ms: ', $i, $at);
            if (isset($step['start'])) {
                $result = $p->admit($call);
                if ($result instanceof Pass) {
                    $passes[$step['start']] = [$p, $result];
                    self::assertSame('start', $step['verdict'], $where.'it starts');
                } else {
                    self::assertIsArray($step['verdict'], $where."it waits: $result->reason, {$result->again} ns");
                    self::assertSame($step['verdict']['why'], $result->reason, $where.'why');
                    self::assertEqualsWithDelta($step['verdict']['wait'], $result->again / 1e6, 1.0, $where.'wait');
                }
            } elseif (isset($step['answer'])) {
                [$its, $pass] = $passes[$step['answer']];
                $wait = $its->answered($pass, $step['status'], $step['fields'] ?? []);
                if ($step['status'] === 429) {
                    if ($step['again'] === null) {
                        self::assertNull($wait, $where.'again');
                    } else {
                        self::assertInstanceOf(Wait::class, $wait, $where.'again');
                        self::assertEqualsWithDelta($step['again'], $wait->again / 1e6, 1.0, $where.'again');
                    }
                } else {
                    self::assertNull($wait, $where);
                }
            } elseif (isset($step['lost'])) {
                $passes[$step['lost']][0]->lost($passes[$step['lost']][1]);
            } elseif (isset($step['unsent'])) {
                $passes[$step['unsent']][0]->unsent($passes[$step['unsent']][1]);
            } elseif (isset($step['waiting'])) {
                $p->waiting($call, $step['waiting']);
                $p->budgets($call);
            }
            if (isset($step['budget'])) {
                $all = $p->budgets($call);
                self::assertCount(count($step['budget']), $all, $where.'windows');
                foreach ($step['budget'] as $j => $want) {
                    foreach ($want as $key => $value) {
                        if ($key === 'restored') {
                            self::assertTrue($all[$j]->known, $where.'known');
                            self::assertEqualsWithDelta($value, $all[$j]->restored / 1e6, 1.0, $where."window $j: restored");
                        } else {
                            self::assertSame($value, $all[$j]->$key, $where."window $j: $key");
                        }
                    }
                }
            }
        }
        foreach ($passes as [, $pass]) {
            $pass->open = false;
        }
        $this->addToAssertionCount(1);
    }

    /** @dataProvider fields */
    public function testFields(array $row): void
    {
        $answer = Fields::read($row['status'], $row['fields']);
        if ($row['status'] === 429) {
            $wait = Fields::retryAfter(Fields::lower($row['fields']));
            self::assertSame($row['retryAfter'], $wait === null ? null : intdiv($wait, 1_000_000), 'retryAfter');
        }
        if ($row['means'] === null) {
            self::assertSame(Answer::NO_FIELDS, $answer->kind);

            return;
        }
        self::assertSame(Answer::BINDING, $answer->kind, 'it has fields');
        $f = $answer->fields;
        foreach ($row['means'] as $key => $value) {
            self::assertSame($value, $key === 'after' ? intdiv($f->after, 1_000_000) : $f->$key, $key);
        }
        $p = new Pacer(clock: static fn (): int => self::CLOCK * 1_000_000);
        $call = new Call('GET', 'http://api.example.com/things');
        $pass = $p->admit($call);
        $p->answered($pass, $row['status'], $row['fields']);
        self::assertSame($row['believed'] ?? true, $p->budget($call)->known, 'it is believed');
    }

    public static function fields(): iterable
    {
        foreach (self::rows('fields.json') as $row) {
            yield $row['name'] => [$row];
        }
    }

    /** @dataProvider requests */
    public function testRequests(array $row): void
    {
        $routes = isset($row['routes']) ? new Routes($row['routes']) : null;
        $p = new Pacer(routes: $routes);
        $queues = [];
        if (isset($row['windows'])) {
            $limiter = $routes->match('GET', (new Call('GET', $row['requests'][0]['url']))->path);
            $declared = array_map(static fn (array $w): array => ['limit' => $w['limit'], 'seconds' => $w['seconds']], $limiter->windows);
            self::assertSame($row['windows'], $declared);
            self::assertCount(count($declared), array_unique(str_split($p->queue(new Call('GET', $row['requests'][0]['url'])), 64)), 'each window has a budget of its own');
        }
        foreach ($row['requests'] as $i => $r) {
            $call = new Call($r['method'], $r['url'], $r['headers'] ?? [], $r['body'] ?? null);
            self::assertSame($row['limiters'][$i], $p->budgets($call)[0]->limiter, "limiter of request $i");
            $queues[] = $p->queue($call);
        }
        $first = array_map(static fn (string $q): int => array_search($q, $queues, true), $queues);
        $want = array_map(static fn (int $b): int => array_search($b, $row['budgets'], true), $row['budgets']);
        self::assertSame($want, $first);
    }

    public static function requests(): iterable
    {
        foreach (self::rows('requests.json') as $row) {
            yield $row['name'] => [$row];
        }
    }

    private static function rows(string $name): array
    {
        $file = __DIR__.'/../../../pacer/testdata/'.$name;

        return is_file($file) ? json_decode(file_get_contents($file), true, 32, JSON_THROW_ON_ERROR) : [];
    }
}
