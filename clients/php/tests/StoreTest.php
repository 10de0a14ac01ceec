<?php

declare(strict_types=1);

namespace Weir\Pacer\Tests;

use PHPUnit\Framework\TestCase;
use Weir\Pacer\ApcuStore;
use Weir\Pacer\Call;
use Weir\Pacer\FileStore;
use Weir\Pacer\MemoryStore;
use Weir\Pacer\Pacer;
use Weir\Pacer\Pass;
use Weir\Pacer\PdoStore;
use Weir\Pacer\Routes;
use Weir\Pacer\Store;
use Weir\Pacer\StoreException;
use Weir\Pacer\Wait;

/**
 * What each store promises. With WEIR_PDO (a DSN; PDO_USER, PDO_PASSWORD) the tests of PdoStore
 * use that database too.
 */
final class StoreTest extends TestCase
{
    private string $dir;
    private string $key;

    protected function setUp(): void
    {
        $this->dir = sys_get_temp_dir().'/weir-php-'.getmypid().'-'.bin2hex(random_bytes(4));
        mkdir($this->dir, 0700);
        $this->key = hash('sha256', 'a key'.$this->dir);
    }

    protected function tearDown(): void
    {
        exec('rm -rf '.escapeshellarg($this->dir));
    }

    public static function kinds(): iterable
    {
        yield 'memory' => ['memory'];
        yield 'apcu' => ['apcu'];
        yield 'file' => ['file'];
        yield 'sqlite' => ['sqlite'];
        if (getenv('WEIR_PDO')) {
            yield 'database' => ['database'];
        }
    }

    /** Where a process of the test finds the store. */
    private function name(string $kind): string
    {
        return match ($kind) {
            'file' => "file:$this->dir/view",
            'sqlite' => "sqlite:$this->dir/view.db",
            default => getenv('WEIR_PDO'),
        };
    }

    private function store(string $kind): Store
    {
        if ($kind === 'memory') {
            return new MemoryStore();
        }
        if ($kind === 'apcu') {
            if (!function_exists('apcu_enabled') || !apcu_enabled()) {
                self::markTestSkipped('needs apcu with apc.enable_cli=1');
            }

            return new ApcuStore("weir:$this->key:", 5);
        }
        if ($kind === 'file') {
            return new FileStore("$this->dir/view", 5);
        }
        $store = new PdoStore(fn () => $this->connect($kind), patience: 30);
        $store->createTable();
        $store->createTable();

        return $store;
    }

    private function connect(string $kind): \PDO
    {
        return new \PDO($this->name($kind), getenv('PDO_USER') ?: null, getenv('PDO_PASSWORD') ?: null);
    }

    private function get(Store $store, ?string $key = null): ?string
    {
        $state = null;
        $store->update($key ?? $this->key, static function (?string $s) use (&$state): string {
            $state = $s;

            return $s ?? '';
        });

        return $state;
    }

    /** @dataProvider kinds */
    public function testAStateIsKeptAsItIs(string $kind): void
    {
        $store = $this->store($kind);
        $other = hash('sha256', 'another'.$this->key);
        $bytes = implode('', array_map('chr', range(0, 255)));
        self::assertNull($this->get($store));
        $store->update($this->key, static fn () => $bytes);
        self::assertNull($this->get($store, $other));
        $store->update($other, static fn () => 'x');
        self::assertSame($bytes, $this->get($store));
        $large = str_repeat($bytes, 31);
        $store->update($this->key, static fn () => $large);
        self::assertSame($large, $this->get($store));
    }

    public static function contested(): iterable
    {
        foreach (self::kinds() as $name => $kind) {
            if (!in_array($name, ['memory', 'file'], true)) {
                yield $name => $kind;
            }
        }
    }

    /**
     * Another process changes the state between reading and writing: nothing is lost.
     *
     * @dataProvider contested
     */
    public function testAChangeBetweenReadingAndWritingIsNotOverwritten(string $kind): void
    {
        $store = $this->store($kind);
        $other = $kind === 'apcu' ? $store : $this->store($kind);
        for ($i = 0; $i < 3; $i++) {
            $store->update($this->key, static fn (?string $s): string => $s.'a');
            $calls = 0;
            $key = $this->key;
            $store->update($key, static function (?string $s) use ($other, $key, &$calls): string {
                if (++$calls === 1) {
                    $other->update($key, static fn (?string $t): string => $t.'b');
                }

                return $s.'c';
            });
            self::assertSame(2, $calls);
        }
        self::assertSame('abcabcabc', $this->get($store));
    }

    public static function shared(): iterable
    {
        foreach (self::kinds() as $name => $kind) {
            if (!in_array($name, ['memory', 'apcu'], true)) {
                yield $name => $kind;
            }
        }
    }

    /** @dataProvider shared */
    public function testProcessesChangeAStateOneAfterTheOther(string $kind): void
    {
        $store = $this->store($kind);
        $this->get($store);
        $workers = [];
        for ($i = 0; $i < 4; $i++) {
            $workers[] = $this->worker('count', $this->name($kind), '100');
        }
        foreach ($workers as $w) {
            self::assertSame(0, $this->end($w), 'a worker ended well');
        }
        self::assertSame('400', $this->get($store));
    }

    /** @dataProvider shared */
    public function testAProcessThatIsKilledInsideOfTheStepLeavesTheStateBefore(string $kind): void
    {
        $store = $this->store($kind);
        $store->update($this->key, static fn () => 'before');
        self::assertSame(SIGKILL, $this->end($this->worker('die', $this->name($kind)), true));
        self::assertSame('before', $this->get($store));
    }

    /** @dataProvider shared */
    public function testTheSlotsOfAProcessThatIsKilledAreFree(string $kind): void
    {
        $routes = new Routes([['name' => 'all', 'routes' => ['/*'], 'windows' => ['100 per day by ip'], 'cost' => ['reserve' => 1, 'from' => 'header:X-Cost'], 'in_flight' => '2 by ip']]);
        $call = new Call('GET', 'https://api.example.com/things');
        $p = new Pacer($this->store($kind), $routes);
        $w = $this->worker('slot', $this->name($kind));
        self::assertSame("held\n", fgets($w[1][1]));
        $own = $p->admit($call);
        self::assertInstanceOf(Pass::class, $own);
        self::assertSame(Wait::SLOTS, $p->admit($call)->reason);
        $p->answered($own, 200, []);
        $own = $p->admit($call);
        self::assertSame(Wait::SLOTS, $p->admit($call)->reason, 'the other process lives');
        proc_terminate($w[0], SIGKILL);
        $this->end($w, true);
        self::assertInstanceOf(Pass::class, $p->admit($call));
    }

    /** @dataProvider shared */
    public function testTheSlotsOfAScriptThatEndsAreFree(string $kind): void
    {
        $routes = new Routes([['name' => 'all', 'routes' => ['/*'], 'in_flight' => '1 by ip']]);
        $call = new Call('GET', 'https://api.example.com/things');
        $store = $this->store($kind);
        self::assertSame(255, $this->end($this->worker('fatal', $this->name($kind))));
        $p = new Pacer($store, $routes);
        $line = new \ReflectionMethod(Pacer::class, 'line');
        $line->setAccessible(true);
        $key = $line->invoke($p, $call)->slots->key;
        self::assertSame('', $this->get($store, $key), 'it has given its slot back, though its process may live on');
        self::assertInstanceOf(Pass::class, $p->admit($call));
    }

    public function testAForkedProcessCountsForItself(): void
    {
        $store = $this->store('apcu');
        $file = $this->store('file');
        $this->get($file);
        $pids = [];
        for ($i = 0; $i < 3; $i++) {
            $pids[] = $pid = pcntl_fork();
            if ($pid === 0) {
                for ($n = 0; $n < 200; $n++) {
                    foreach ([$store, $file] as $one) {
                        $one->update($this->key, static fn (?string $s): string => (string) ((int) $s + 1));
                    }
                }
                posix_kill(getmypid(), SIGKILL); // without the parent's shutdown
            }
        }
        foreach ($pids as $pid) {
            pcntl_waitpid($pid, $status);
        }
        self::assertSame('600', $this->get($store));
        self::assertSame('600', $this->get($file));
    }

    public function testAProcessThatHoldsTheFileDelaysOthersForABoundedTime(): void
    {
        $w = $this->worker('hold', "file:$this->dir/view");
        self::assertSame("held\n", fgets($w[1][1]));
        $store = new FileStore("$this->dir/view", 0.01);
        try {
            $store->update($this->key, static fn () => 'x');
            self::fail('the file is locked');
        } catch (StoreException $e) {
            self::assertStringContainsString('another process holds the lock', $e->getMessage());
        }
        // the Pacer goes on by its own view, and says so once
        $failures = 0;
        $p = new Pacer($store, onStoreFailure: static function () use (&$failures): void {
            $failures++;
        }, clock: static fn (): int => 1_800_000_000_000_000_000);
        $call = new Call('GET', 'https://api.example.com/things');
        $pass = $p->admit($call);
        self::assertInstanceOf(Pass::class, $pass);
        $p->answered($pass, 200, self::fields(10, 0));
        self::assertInstanceOf(Wait::class, $p->admit($call));
        self::assertSame(1, $failures);
        fwrite($w[1][0], "go on\n");
        self::assertSame(0, $this->end($w));
        $store->update($this->key, static fn () => 'x');
        self::assertSame('x', $this->get($store));
    }

    public function testAnAnswerThatTheStoreMissedLeavesNothingInFlight(): void
    {
        $store = new class implements Store {
            public bool $fails = false;
            private MemoryStore $states;

            public function __construct()
            {
                $this->states = new MemoryStore();
            }

            public function update(string $key, callable $change): void
            {
                if ($this->fails) {
                    throw new StoreException('it fails');
                }
                $this->states->update($key, $change);
            }
        };
        $call = new Call('GET', 'https://api.example.com/things');
        $p = new Pacer($store);
        $pass = $p->admit($call);
        $store->fails = true;
        $p->answered($pass, 200, self::fields(10, 5));
        $store->fails = false;
        $other = new Pacer($store);
        self::assertSame(1, $other->budget($call)->inFlight);
        unset($p, $pass);
        self::assertSame(0, $other->budget($call)->inFlight);
    }

    public function testASlotThatIsHalfWrittenLeavesTheStateBefore(): void
    {
        foreach ([1, 20, 100, 8000] as $cut) {
            $store = new FileStore("$this->dir/cut$cut", 5);
            foreach (['one', 'two', 'three'] as $state) {
                $store->update($this->key, static fn () => str_repeat($state, 500));
            }
            $slots = $this->slots("$this->dir/cut$cut");
            $newest = array_key_last($slots);
            $file = fopen("$this->dir/cut$cut", 'r+');
            fseek($file, $slots[$newest] + min($cut, 1000));
            fwrite($file, str_repeat("\0", 50)); // what was there before the page was written
            fclose($file);
            self::assertSame(str_repeat('two', 500), $this->get(new FileStore("$this->dir/cut$cut", 5)), "cut at $cut");
        }
    }

    /** Returns the offsets of the slots in use, by their numbers. */
    private function slots(string $path): array
    {
        $text = file_get_contents($path);
        $slots = [];
        for ($at = 4096; $at < strlen($text); $at += 8192) {
            ['length' => $length, 'number' => $number] = unpack('Vlength/Pnumber', $text, $at + 4);
            if ($length > 0) {
                $slots[$number] = $at;
            }
        }
        ksort($slots);

        return $slots;
    }

    public function testAFileThatIsCutIsRepaired(): void
    {
        foreach ([0, 1, 9, 10, 4096, 5000, 100_000, 700_000] as $size) {
            $path = "$this->dir/cut$size";
            $store = new FileStore($path, 5);
            $store->update($this->key, static fn () => 'state');
            $file = fopen($path, 'r+');
            ftruncate($file, $size);
            fclose($file);
            foreach ([$store, new FileStore($path, 5)] as $one) {
                self::assertContains($this->get($one), [null, '', 'state', 'anew'], "cut to $size");
                $one->update($this->key, static fn () => 'anew');
                self::assertSame('anew', $this->get($one), "cut to $size");
            }
        }
    }

    /** As on a full disk, a file cannot grow. */
    public function testAFileThatCannotGrowIsAnErrorAndIsUsedWhenItCan(): void
    {
        $command = sprintf("trap '' XFSZ; ulimit -f 100; exec %s %s/worker.php store %s %s", escapeshellarg(PHP_BINARY), escapeshellarg(__DIR__), escapeshellarg("file:$this->dir/view"), $this->key);
        self::assertStringContainsString("write $this->dir/view: ", (string) shell_exec($command));
        $store = $this->store('file');
        self::assertNull($this->get($store));
        $store->update($this->key, static fn () => 'x');
        self::assertSame('x', $this->get($store));
    }

    public function testAFileThatIsRemovedIsMadeAnew(): void
    {
        $store = new FileStore("$this->dir/view", 5);
        $store->update($this->key, static fn () => 'state');
        unlink("$this->dir/view");
        self::assertNull($this->get($store));
        $store->update($this->key, static fn () => 'anew');
        self::assertSame('anew', $this->get(new FileStore("$this->dir/view", 5)));
    }

    public function testAFileIsForItsOwnerOnly(): void
    {
        $this->get(new FileStore("$this->dir/deep/view"));
        clearstatcache();
        self::assertSame(0100600, fileperms("$this->dir/deep/view"));
        self::assertSame(040700, fileperms("$this->dir/deep"));
    }

    public function testADirectoryIsMadeWithThoseAbove(): void
    {
        $this->get(new FileStore("$this->dir/a/b/view"));
        self::assertSame([040700, 040700], [fileperms("$this->dir/a"), fileperms("$this->dir/a/b")]);
        $this->expectExceptionMessage("make the directory $this->dir/a/b/view/c: ");
        $this->expectExceptionMessageMatches('/(File exists|Not a directory)$/');
        $this->get(new FileStore("$this->dir/a/b/view/c/view"));
    }

    public function testFilesThatAreNotOnesOwnAreRefused(): void
    {
        file_put_contents("$this->dir/text", 'a text of somebody');
        chmod("$this->dir/text", 0600);
        $this->get(new FileStore("$this->dir/view"));
        symlink("$this->dir/view", "$this->dir/link");
        mkdir("$this->dir/directory");
        $this->get(new FileStore("$this->dir/open/view"));
        chmod("$this->dir/open", 0777);
        $this->get(new FileStore("$this->dir/writable"));
        chmod("$this->dir/writable", 0666);
        $refused = [
            'text' => 'holds something else',
            'link' => 'no regular file',
            'directory' => 'no regular file',
            'open/view' => 'other users can write to its directory',
            'writable' => 'other users can write to it',
            'text/view' => 'make the directory',
        ];
        if (posix_geteuid() === 0) {
            $this->get(new FileStore("$this->dir/others"));
            chown("$this->dir/others", 33);
            $refused['others'] = 'is of user 33';
        }
        foreach ($refused as $name => $why) {
            try {
                $this->get(new FileStore("$this->dir/$name"));
                self::fail("$name is refused");
            } catch (StoreException $e) {
                self::assertStringContainsString($why, $e->getMessage(), $name);
            }
        }
        self::assertSame('a text of somebody', file_get_contents("$this->dir/text"));
    }

    public function testAPageKeepsTheStatesThatWereChangedLast(): void
    {
        $store = new FileStore("$this->dir/view");
        $keys = [];
        for ($i = 0; $i < 40; $i++) { // all of one page
            $keys[$i] = '00'.substr(hash('sha256', (string) $i), 2);
            $store->update($keys[$i], static fn () => str_repeat(chr($i), 500));
        }
        self::assertNull($this->get($store, $keys[0]));
        self::assertSame(str_repeat(chr(39), 500), $this->get($store, $keys[39]));
        self::assertSame(str_repeat(chr(38), 500), $this->get($store, $keys[38]));
    }

    /** @dataProvider transactions */
    public function testAnOpenTransactionIsNotDisturbed(string $kind): void
    {
        $this->store($kind);
        $pdo = $this->connect($kind);
        $store = new PdoStore($pdo);
        $pdo->beginTransaction();
        try {
            $store->update($this->key, static fn () => 'x');
            self::fail('the connection has an open transaction');
        } catch (StoreException $e) {
            self::assertStringContainsString('open transaction', $e->getMessage());
        }
        self::assertTrue($pdo->inTransaction());
        $pdo->rollBack();
        $store->update($this->key, static fn () => 'x');
        self::assertSame('x', $this->get($store));
        self::assertFalse($pdo->inTransaction());
    }

    public static function transactions(): iterable
    {
        yield 'sqlite' => ['sqlite'];
        if (getenv('WEIR_PDO')) {
            yield 'database' => ['database'];
        }
    }

    /** @dataProvider transactions */
    public function testAConnectionThatReportsErrorsByValuesFails(string $kind): void
    {
        $pdo = $this->connect($kind);
        $pdo->setAttribute(\PDO::ATTR_ERRMODE, \PDO::ERRMODE_SILENT);
        $this->expectException(StoreException::class);
        $this->expectExceptionMessageMatches('/none_such/');
        (new PdoStore($pdo, 'none_such'))->update($this->key, static fn () => 'x');
    }

    public function testAConnectionThatCountsFoundRows(): void
    {
        if (!str_starts_with((string) getenv('WEIR_PDO'), 'mysql:')) {
            $this->addToAssertionCount(1); // it is an option of MySQL

            return;
        }
        $other = $this->store('database');
        $options = [\PDO::MYSQL_ATTR_FOUND_ROWS => true];
        $store = new PdoStore(new \PDO(getenv('WEIR_PDO'), getenv('PDO_USER') ?: null, getenv('PDO_PASSWORD') ?: null, $options), patience: 5);
        $calls = 0;
        $key = $this->key;
        $store->update($key, static fn () => 'a');
        $store->update($key, static function (?string $s) use ($other, $key, &$calls): string {
            if (++$calls === 1) {
                $other->update($key, static fn (?string $t): string => $t.'b');
            }

            return $s.'c';
        });
        self::assertSame([2, 'abc'], [$calls, $this->get($store)]);
    }

    public function testADatabaseThatIsAwayIsAskedOnceASecond(): void
    {
        $tries = $failures = 0;
        $store = new PdoStore(static function () use (&$tries): \PDO {
            $tries++;
            throw new \PDOException('no connection');
        });
        $p = new Pacer($store, onStoreFailure: static function () use (&$failures): void {
            $failures++;
        }, clock: static fn (): int => 1_800_000_000_000_000_000);
        for ($i = 0; $i < 5; $i++) {
            $pass = $p->admit(new Call('GET', 'https://api.example.com/things'));
            self::assertInstanceOf(Pass::class, $pass);
            $p->answered($pass, 200, self::fields(60, 50));
        }
        self::assertSame(1, $tries);
        self::assertSame(1, $failures);
    }

    public function testAConnectionThatWasEndedIsMadeAnew(): void
    {
        if (!str_starts_with((string) getenv('WEIR_PDO'), 'mysql:')) {
            $this->addToAssertionCount(1); // a file has no connection

            return;
        }
        $made = [];
        $store = new PdoStore(function () use (&$made): \PDO {
            return $made[] = $this->connect('database');
        });
        $store->createTable();
        $store->update($this->key, static fn (): string => 'before');
        $id = $made[0]->query('SELECT CONNECTION_ID()')->fetchColumn();
        $this->connect('database')->exec("KILL $id");
        self::assertSame('before', $this->get($store));
        self::assertCount(2, $made);
    }

    public function testAConnectionWithoutAutocommitKeepsNothingLocked(): void
    {
        if (!str_starts_with((string) getenv('WEIR_PDO'), 'mysql:')) {
            $this->addToAssertionCount(1); // it is an option of MySQL

            return;
        }
        $this->store('database');
        $options = [\PDO::ATTR_AUTOCOMMIT => false];
        $connect = static fn (): \PDO => new \PDO(getenv('WEIR_PDO'), getenv('PDO_USER') ?: null, getenv('PDO_PASSWORD') ?: null, $options);
        $store = new PdoStore($connect);
        $store->update($this->key, static fn (): string => 'a');
        $store->update($this->key, static fn (?string $s): string => $s.'b');
        self::assertSame('ab', $this->get($this->store('database')));
        $this->expectException(StoreException::class);
        $this->expectExceptionMessage('autocommit');
        (new PdoStore($connect()))->update($this->key, static fn (): string => 'c');
    }

    /** @dataProvider databases */
    public function testAForkedProcessHasItsOwnConnection(string $kind): void
    {
        $store = $this->store($kind);
        $this->get($store);
        $pids = [];
        for ($i = 0; $i < 3; $i++) {
            $pids[] = $pid = pcntl_fork();
            if ($pid === 0) {
                for ($n = 0; $n < 100; $n++) {
                    $store->update($this->key, static fn (?string $s): string => (string) ((int) $s + 1));
                }
                posix_kill(getmypid(), SIGKILL); // without the parent's shutdown
            }
        }
        foreach ($pids as $pid) {
            pcntl_waitpid($pid, $status);
        }
        self::assertSame('300', $this->get($store));
    }

    public static function databases(): iterable
    {
        yield 'sqlite' => ['sqlite'];
        if (getenv('WEIR_PDO')) {
            yield 'database' => ['database'];
        }
    }

    public function testAForkedProcessLeavesTheCallsOfItsParent(): void
    {
        $call = new Call('GET', 'https://api.example.com/things');
        $p = new Pacer($this->store('file'));
        $p->answered($p->admit($call), 200, self::fields(10, 9));
        $pass = $p->admit($call);
        $pid = pcntl_fork();
        if ($pid === 0) {
            unset($pass); // as at its end
            posix_kill(getmypid(), SIGKILL);
        }
        pcntl_waitpid($pid, $status);
        self::assertSame(1, (new Pacer($this->store('file')))->budget($call)->inFlight);
        $p->answered($pass, 200, self::fields(10, 8));
        self::assertSame([0, 8], [$p->budget($call)->inFlight, $p->budget($call)->remaining]);
    }

    public function testTheClockOfTheDatabaseCounts(): void
    {
        $store = $this->store('sqlite');
        self::assertEqualsWithDelta(microtime(true), $store->time() / 1e9, 5);
        if (getenv('WEIR_PDO')) {
            $store = $this->store('database');
            $first = $store->time();
            self::assertEqualsWithDelta(microtime(true), $first / 1e9, 5);
            self::assertGreaterThan($first, $store->time());
        }
    }

    /** The fields of an answer whose window ends in a minute. */
    private static function fields(int $limit, int $remaining): array
    {
        return [
            'Date' => gmdate('D, d M Y H:i:s').' GMT',
            'X-RateLimit-Limit' => (string) $limit,
            'X-RateLimit-Remaining' => (string) $remaining,
            'X-RateLimit-Reset' => (string) (time() + 60),
        ];
    }

    /** Starts a process of the tests. */
    private function worker(string $role, string $name, string ...$more): array
    {
        $command = [PHP_BINARY, __DIR__.'/worker.php', $role, $name, $this->key, ...$more];
        $process = proc_open($command, [['pipe', 'r'], ['pipe', 'w'], STDERR], $pipes);
        self::assertIsResource($process);

        return [$process, $pipes];
    }

    /** Waits for the end of a process, and returns its code, or the signal that ended it. */
    private function end(array $worker, bool $signal = false): int
    {
        fclose($worker[1][0]);
        stream_get_contents($worker[1][1]);
        do { // proc_get_status knows the signal once
            $status = proc_get_status($worker[0]);
        } while ($status['running']);
        proc_close($worker[0]);

        return $signal ? $status['termsig'] : $status['exitcode'];
    }
}
