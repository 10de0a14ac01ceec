<?php

declare(strict_types=1);

namespace Weir\Pacer\Tests;

use PHPUnit\Framework\TestCase;
use Weir\Pacer\Routes;

/** What Routes reject, so that a mistake is not a request that nothing covers. */
final class RoutesTest extends TestCase
{
    /** @dataProvider routes */
    public function testARouteOfAnotherFormIsRejected(string $route, string $says): void
    {
        $this->expectException(\InvalidArgumentException::class);
        $this->expectExceptionMessage($says);
        new Routes([['name' => 'x', 'routes' => [$route], 'windows' => ['60 per minute by ip']]]);
    }

    public static function routes(): iterable
    {
        yield ['t/{tenant}', 'the form is'];
        yield ['https://api.example.com/t', 'the form is'];
        yield ['api.example.com:8443/t', 'the form is'];
        yield ['*example.com/t', 'the form is'];
        yield ['api..example.com/t', 'the form is'];
        yield ['/t/{tenant', 'a parameter is a whole segment'];
        yield ['/t/x{tenant}', 'a parameter is a whole segment'];
        yield ['/t/{Tenant}', 'a parameter is a whole segment'];
        yield ['/t/{}', 'a parameter is a whole segment'];
        yield ['/t/{a}/u/{a}', 'parameter {a} occurs twice'];
        yield ['/t/{tenant}*', 'a star cannot follow a parameter'];
    }

    /** @dataProvider windows */
    public function testAWindowOfAnotherFormIsRejected(string $window, string $says): void
    {
        $this->expectException(\InvalidArgumentException::class);
        $this->expectExceptionMessage($says);
        new Routes([['name' => 'x', 'routes' => ['/*'], 'windows' => [$window]]]);
    }

    public static function windows(): iterable
    {
        yield ['60 per calendar year by ip', 'the form is'];
        yield ['60 per calendar 2 months by ip', 'the form is'];
        yield ['60 per calendar month in Nowhere/Town by ip', 'time zone "Nowhere/Town" is unknown'];
        yield ['60 per calendar month from day 32 by ip', 'begins on day 1 to 31'];
        yield ['60 per calendar week from day 0 by ip', 'begins on day 1 to 7'];
        yield ['60 per calendar day from day 2 by ip', 'begins on day 1 to 1'];
        yield ['60 per minute by path:', 'is no key source'];
        yield ['60 per 40 days by ip', 'from a second to 31 days'];
    }
}
