<?php

declare(strict_types=1);

// Fills the disk of a FileStore: php disk.php DIRECTORY, in a mount namespace of its own.

use Weir\Pacer\Call;
use Weir\Pacer\FileStore;
use Weir\Pacer\Pacer;
use Weir\Pacer\Pass;
use Weir\Pacer\Wait;

require __DIR__.'/../../../../clients/php/tests/bootstrap.php';

$disk = $argv[1];
passthru('mount -t tmpfs -o size=3m,mode=0700 none '.escapeshellarg($disk), $code);
if ($code !== 0) {
    exit(1);
}

function expect(bool $ok, string $what): void
{
    if (!$ok) {
        fwrite(STDERR, "it does not hold that $what\n");
        exit(1);
    }
}

function fill(string $file): void
{
    $written = @file_put_contents($file, str_repeat('x', 4 << 20));
    expect($written !== 4 << 20 && disk_free_space(dirname($file)) < 4096, 'the disk is full');
}

$call = new Call('GET', 'https://api.example.com/things');
$failures = [];
$make = static function () use ($disk, &$failures): Pacer {
    return new Pacer(new FileStore("$disk/view"), onStoreFailure: static function (Throwable $e) use (&$failures): void {
        $failures[] = $e->getMessage();
    });
};
$fields = static fn (int $left): array => ['Date' => gmdate('D, d M Y H:i:s').' GMT', 'X-RateLimit-Limit' => '10',
    'X-RateLimit-Remaining' => (string) $left, 'X-RateLimit-Reset' => (string) (time() + 60)];

// before the file exists: the Pacer goes by its own view
fill("$disk/filler");
$p = $make();
$pass = $p->admit($call);
expect($pass instanceof Pass, 'a call starts');
$p->answered($pass, 200, $fields(0));
expect($p->admit($call) instanceof Wait, 'its own view counts');
expect(count($failures) >= 1 && str_contains($failures[0], 'write'), 'the failure is reported');
unset($p, $pass);

// as soon as there is room it works
unlink("$disk/filler");
$failures = [];
$p = $make();
$pass = $p->admit($call);
$p->answered($pass, 200, $fields(9));
unset($p, $pass);

// and the disk may fill up again
fill("$disk/filler");
$p = $make();
for ($left = 8; $left > 0; $left--) {
    $pass = $p->admit($call);
    expect($pass instanceof Pass, 'a call starts');
    $p->answered($pass, 200, $fields($left));
}
expect($failures === [], 'nothing fails: '.implode(', ', $failures));
expect($make()->budget($call)->remaining === 1, 'another process sees what was written');
echo "done\n";
