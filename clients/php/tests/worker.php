<?php

declare(strict_types=1);

// A process of the tests: php worker.php ROLE ARGUMENT…

use Weir\Pacer\Call;
use Weir\Pacer\FileStore;
use Weir\Pacer\Pacer;
use Weir\Pacer\PdoStore;
use Weir\Pacer\Routes;
use Weir\Pacer\Store;
use Weir\Pacer\StoreException;

require __DIR__.'/bootstrap.php';

/** A store by its kind: file:PATH, sqlite:PATH, or a DSN of PDO. */
function store(string $name): Store
{
    if (str_starts_with($name, 'file:')) {
        return new FileStore(substr($name, 5), 5);
    }

    return new PdoStore(static fn () => new PDO($name, getenv('PDO_USER') ?: null, getenv('PDO_PASSWORD') ?: null), patience: 30);
}

[, $role, $name, $key] = $argv;
$store = store($name);
switch ($role) {
    case 'count': // adds to a number
        for ($i = 0; $i < (int) $argv[4]; $i++) {
            $store->update($key, static fn (?string $s): string => (string) ((int) $s + 1));
        }
        break;
    case 'store': // changes the state, or prints why it cannot
        try {
            $store->update($key, static fn (): string => 'stored');
        } catch (StoreException $e) {
            echo $e->getMessage();
        }
        break;
    case 'slot': // holds a slot until its input ends
        $routes = new Routes([['name' => 'all', 'routes' => ['/*'], 'windows' => ['100 per day by ip'], 'cost' => ['reserve' => 1, 'from' => 'header:X-Cost'], 'in_flight' => '2 by ip']]);
        $pacer = new Pacer($store, $routes);
        $pass = $pacer->admit(new Call('GET', 'https://api.example.com/things'));
        $pacer->began($pass, 200, []);
        echo "held\n";
        fgets(STDIN);
        break;
    case 'fatal': // ends by an error while it holds a slot, without its destructors
        ini_set('display_errors', '0');
        ini_set('log_errors', '0');
        $pacer = new Pacer($store, new Routes([['name' => 'all', 'routes' => ['/*'], 'in_flight' => '1 by ip']]));
        $pass = $pacer->admit(new Call('GET', 'https://api.example.com/things'));
        @trigger_error('it ends', E_USER_ERROR);
        break;
    case 'die': // is killed inside of the step
        $store->update($key, static function (): string {
            posix_kill(getmypid(), SIGKILL);

            return 'never';
        });
        // no break
    case 'hold': // stays inside of the step until its input ends
        $store->update($key, static function (?string $s): string {
            echo "held\n";
            fgets(STDIN);

            return $s ?? '';
        });
}
