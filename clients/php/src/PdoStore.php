<?php

declare(strict_types=1);

namespace Weir\Pacer;

/**
 * Keeps states in a table of MySQL, MariaDB, PostgreSQL or SQLite, for processes of any machines.
 *
 * A change reads a row and writes it by one statement that does nothing if the row has changed
 * meanwhile; then it is tried again. There is no transaction and no lock that a killed process
 * could keep. States have the time of the database, so that the clocks of the machines may differ.
 *
 * Inside of a transaction the statements would belong to it, and other processes would wait for its
 * end. So a connection with an open transaction is refused: give the store a function that makes a
 * connection of its own.
 */
final class PdoStore implements StoreWithClock
{
    private const LIFE = 3600; // seconds

    /** How often a change is tried at least. */
    private const MIN_TRIES = 20;

    private ?\PDO $pdo;
    /** @var (\Closure(): \PDO)|null */
    private ?\Closure $connect;
    private string $driver = '';
    /** The process that made the connection. */
    private int $pid = 0;
    /** Connections of a parent process: if they were dropped here, it would lose them. */
    private array $inherited = [];
    /** Nanoseconds that the database's clock is ahead of hrtime; null: not known. */
    private ?int $ahead = null;
    /** hrtime after which the clock is compared again. */
    private int $compare = 0;
    /** hrtime before which no connection is tried again. */
    private int $away = 0;

    /**
     * @param \PDO|\Closure(): \PDO $connection a function is called at the first use, and
     *                                              again if the connection was lost
     * @param string                $table      letters, digits and underscores
     * @param float                 $patience   seconds to go on trying while other processes change
     *                                          the same state; it is tried 20 times in any case
     */
    public function __construct(
        \PDO|\Closure $connection,
        private readonly string $table = 'weir_pacer',
        private readonly float $patience = 0.1,
    ) {
        if (preg_match('/^[A-Za-z_][A-Za-z0-9_]*\z/', $table) !== 1) {
            throw new \InvalidArgumentException("table \"$table\": letters, digits and underscores are allowed");
        }
        $this->pdo = $connection instanceof \PDO ? $connection : null;
        $this->connect = $connection instanceof \Closure ? $connection : null;
    }

    /** Makes the table if it does not exist: once, when the application is installed. */
    public function createTable(): void
    {
        $pdo = $this->pdo();
        $end = $this->driver === 'mysql' ? ' ENGINE=InnoDB DEFAULT CHARACTER SET ascii COLLATE ascii_bin' : '';
        $this->run($pdo, "CREATE TABLE IF NOT EXISTS $this->table (name CHAR(64) NOT NULL PRIMARY KEY, "
            ."version BIGINT NOT NULL, changed BIGINT NOT NULL, state TEXT NOT NULL)$end", []);
    }

    public function update(string $key, callable $change): void
    {
        $this->pdo();
        $until = hrtime(true) + (int) ($this->patience * 1e9);
        for ($try = 1; !$this->tryOnce($key, $change, $try); $try++) {
            // A conflict means that another process went on, so a slow machine alone is no failure.
            if ($try >= self::MIN_TRIES && hrtime(true) > $until) {
                throw new StoreException("update $this->table: other processes changed the same row $try times meanwhile");
            }
            usleep(random_int(1, 200 * min($try, 10)));
        }
        if (random_int(1, 1000) === 1) {
            $this->run($this->pdo(), "DELETE FROM $this->table WHERE changed < ?", [intdiv($this->time(), Clock::SECOND) - self::LIFE]);
        }
    }

    public function time(): int
    {
        try {
            if ($this->ahead === null || hrtime(true) > $this->compare) {
                $this->compareClocks($this->pdo());
            }
        } catch (\Exception) {
            // the next update fails too, and reports it; until then the local clock has to do
        }

        return $this->ahead === null ? (int) (microtime(true) * 1e6) * 1000 : hrtime(true) + $this->ahead;
    }

    private function tryOnce(string $key, callable $change, int $try): bool
    {
        try {
            return $this->replace($this->pdo(), $key, $change);
        } catch (\PDOException $e) {
            if ((string) $e->getCode() === '40001') { // InnoDB took it for a deadlock
                return false;
            }
            if ($this->connect !== null) { // servers end connections that are idle
                $this->pdo = null;
                $this->away = 0;
                if ($try === 1 && self::isLost($e)) {
                    return false;
                }
            }
            throw $e;
        }
    }

    /** Reports whether the server has ended the connection. */
    private static function isLost(\PDOException $e): bool
    {
        return in_array($e->errorInfo[1] ?? 0, [2006, 2013, 4031], true)
            || in_array(substr((string) $e->getCode(), 0, 3), ['080', '57P'], true);
    }

    private function replace(\PDO $pdo, string $key, callable $change): bool
    {
        $row = $this->run($pdo, "SELECT version, state FROM $this->table WHERE name = ?", [$key])->fetch(\PDO::FETCH_NUM);
        $version = $row === false ? 0 : (int) $row[0];
        $state = $row === false ? false : base64_decode($row[1], true);
        $next = random_int(1, PHP_INT_MAX);
        $values = [$key, $next, intdiv($this->time(), Clock::SECOND), base64_encode($change($state === false ? null : $state))];
        $insert = "INSERT INTO $this->table (name, version, changed, state) VALUES (?, ?, ?, ?) ";
        if ($this->driver === 'mysql') {
            // assigned from left to right: version comes last
            $written = $this->run($pdo, $insert.'ON DUPLICATE KEY UPDATE '
                .'changed = IF(version = ?, VALUES(changed), changed), state = IF(version = ?, VALUES(state), state), '
                .'version = IF(version = ?, VALUES(version), version)', [...$values, $version, $version, $version])->rowCount();
            // 2: changed, 1: inserted, 0: neither. With MYSQL_ATTR_FOUND_ROWS neither is 1 too.
            return $written === 2 || $written === 1 && $this->isVersion($pdo, $key, $next);
        }

        return $this->run($pdo, $insert.'ON CONFLICT (name) DO UPDATE SET version = excluded.version, '
            ."changed = excluded.changed, state = excluded.state WHERE $this->table.version = ?", [...$values, $version])->rowCount() > 0;
    }

    private function isVersion(\PDO $pdo, string $key, int $version): bool
    {
        return (int) $this->run($pdo, "SELECT version FROM $this->table WHERE name = ?", [$key])->fetchColumn() === $version;
    }

    private function compareClocks(\PDO $pdo): void
    {
        $now = [
            'mysql' => 'SELECT CAST(UNIX_TIMESTAMP(SYSDATE(6)) * 1000000 AS SIGNED)',
            'pgsql' => 'SELECT CAST(EXTRACT(EPOCH FROM clock_timestamp()) * 1000000 AS BIGINT)',
        ][$this->driver] ?? null;
        $before = hrtime(true);
        // a SQLite file is of one machine
        $micros = $now === null ? (int) (microtime(true) * 1e6) : (int) $this->run($pdo, $now, [])->fetchColumn();
        $after = hrtime(true);
        $this->ahead = $micros * 1000 - intdiv($before + $after, 2);
        $this->compare = $after + ($now === null ? 0 : 10 * Clock::SECOND);
    }

    private function pdo(): \PDO
    {
        if ($this->connect !== null && $this->pdo !== null && $this->pid !== getmypid()) { // a fork
            $this->inherited[] = $this->pdo;
            $this->pdo = null;
            $this->away = 0;
        }
        if ($this->pdo === null) {
            if (hrtime(true) < $this->away) {
                throw new StoreException("update $this->table: there was no connection a moment ago");
            }
            $this->away = hrtime(true) + Clock::SECOND;
            $pdo = ($this->connect)();
            $this->pid = getmypid();
            $this->prepare($pdo);
            $this->pdo = $pdo;
        } elseif ($this->driver === '') {
            $this->prepare($this->pdo);
        }
        if ($this->pdo->inTransaction()) {
            throw new StoreException("update $this->table: the connection has an open transaction: give PdoStore a function that makes a connection of its own");
        }

        return $this->pdo;
    }

    /** Checks a new connection. Only one of its own is changed. */
    private function prepare(\PDO $pdo): void
    {
        $driver = $pdo->getAttribute(\PDO::ATTR_DRIVER_NAME);
        if (!in_array($driver, ['mysql', 'pgsql', 'sqlite'], true)) {
            throw new \LogicException("PdoStore knows MySQL, MariaDB, PostgreSQL and SQLite, and the connection is of $driver");
        }
        $own = $this->connect !== null;
        if ($own) {
            $pdo->setAttribute(\PDO::ATTR_ERRMODE, \PDO::ERRMODE_EXCEPTION);
        }
        if ($driver === 'mysql' && !$pdo->getAttribute(\PDO::ATTR_AUTOCOMMIT)) {
            if (!$own) { // the first statement would begin a transaction
                throw new StoreException("update $this->table: the connection has no autocommit: give PdoStore a function that makes a connection of its own");
            }
            $pdo->setAttribute(\PDO::ATTR_AUTOCOMMIT, true);
        }
        if ($own && $driver === 'mysql') { // the default is 50 seconds
            $pdo->exec('SET SESSION innodb_lock_wait_timeout = '.max((int) ceil($this->patience), 1));
        }
        if ($own && $driver === 'sqlite') { // PDO's default is a minute
            $pdo->exec('PRAGMA busy_timeout = '.(int) ($this->patience * 1000));
        }
        $this->driver = $driver;
    }

    /** @param list<int|string> $values */
    private function run(\PDO $pdo, string $sql, array $values): \PDOStatement
    {
        $statement = $pdo->prepare($sql);
        if ($statement === false) {
            throw new StoreException("update $this->table: ".($pdo->errorInfo()[2] ?? 'the statement cannot be prepared'));
        }
        foreach ($values as $i => $value) {
            $statement->bindValue($i + 1, $value, is_int($value) ? \PDO::PARAM_INT : \PDO::PARAM_STR);
        }
        if (!$statement->execute()) {
            throw new StoreException("update $this->table: ".($statement->errorInfo()[2] ?? 'the statement failed'));
        }

        return $statement;
    }
}
