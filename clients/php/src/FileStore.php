<?php

declare(strict_types=1);

namespace Weir\Pacer;

/**
 * Keeps states in a file, for processes of one machine such as the workers of PHP-FPM.
 *
 * The file is a table of pages; a budget's page follows from its key. A process holds the lock of
 * the file (flock) for some microseconds while it changes a page. Each page has two slots with a
 * checksum and a number, and a change is written over the older one. So a process that is killed
 * leaves the state before its change, the system frees its lock, and a slot that is half written is
 * ignored. The file has its full size from the beginning, so that a disk that fills up later stops
 * nothing.
 *
 * The file holds no secrets: keys are hashes. But a process that can write to it can delay others,
 * so it has to be in a private directory; one of another user, or that others can write to, is
 * refused, and so are symbolic links.
 */
final class FileStore implements Store
{
    private const MAGIC = "weirphp1\n";
    private const HEAD = 4096;
    private const SLOT = 8192;
    private const PAGES = 64; // 1 MiB; a page holds about twenty budgets
    private const SLOT_HEAD = 16; // checksum, length, number
    private const ENTRY_HEAD = 42; // key, Unix second of the change, length
    private const LIFE = 3600; // seconds

    /** @var resource|null */
    private $file = null;
    private int $pid = 0;

    /**
     * @param string $path     of the file. It is created if it does not exist, and so is its
     *                         directory, for their owner only
     * @param float  $lockWait seconds to wait for the lock: a suspended process that holds it must
     *                         not stop the others
     */
    public function __construct(private readonly string $path, private readonly float $lockWait = 0.25)
    {
    }

    public function update(string $key, callable $change): void
    {
        $raw = strlen($key) === 64 ? @hex2bin($key) : false;
        if ($raw === false) {
            throw new StoreException("update $this->path: a key of 64 hexadecimal digits is required");
        }
        $at = self::HEAD + 2 * self::SLOT * (ord($raw[0]) % self::PAGES);
        $file = $this->locked();
        try {
            $text = $this->read($file, $at, 2 * self::SLOT);
            $newer = 0;
            [$number, $entries] = self::newest($text, $newer);
            $state = $change($entries[$raw][1] ?? null);
            if (strlen($state) > self::SLOT - self::SLOT_HEAD - self::ENTRY_HEAD) {
                throw new StoreException(sprintf('update %s: a state of %d bytes does not fit', $this->path, strlen($state)));
            }
            $this->write($file, $at + self::SLOT * (1 - $newer), self::slot($number + 1, $raw, $state, $entries));
        } finally {
            flock($file, LOCK_UN);
        }
    }

    /**
     * Reads the slot of a page that was written last, and puts its index in $newer. A slot that was
     * half written, or never, is ignored.
     *
     * @return array{int, array<string, array{int, string}>} its number, and the states with the
     *                                                       seconds of their changes by key
     */
    private static function newest(string $page, int &$newer): array
    {
        $heads = [unpack('Vsum/Vlength/Pnumber', $page), unpack('Vsum/Vlength/Pnumber', $page, self::SLOT)];
        $first = $heads[1]['number'] > $heads[0]['number'] ? 1 : 0;
        foreach ([$first, 1 - $first] as $i) {
            ['sum' => $sum, 'length' => $length, 'number' => $number] = $heads[$i];
            $start = $i * self::SLOT;
            if ($length === 0 || $length > self::SLOT - self::SLOT_HEAD
                || $sum !== crc32(substr($page, $start + 4, self::SLOT_HEAD - 4 + $length))) {
                continue;
            }
            $newer = $i;
            $entries = [];
            for ($at = $start + self::SLOT_HEAD, $end = $at + $length; $at < $end;) {
                ['at' => $changed, 'size' => $size] = unpack('Pat/nsize', $page, $at + 32);
                $entries[substr($page, $at, 32)] = [$changed, substr($page, $at + self::ENTRY_HEAD, $size)];
                $at += self::ENTRY_HEAD + $size;
            }

            return [$number, $entries];
        }

        return [0, []];
    }

    /**
     * Returns a slot with one state changed, which comes first. The states that were changed first
     * are dropped if there is no room.
     *
     * @param array<string, array{int, string}> $entries
     */
    private static function slot(int $number, string $key, string $state, array $entries): string
    {
        $now = time();
        $text = $key.pack('Pn', $now, strlen($state)).$state;
        foreach ($entries as $other => [$changed, $kept]) {
            $size = self::ENTRY_HEAD + strlen($kept);
            if ($other !== $key && $now - $changed <= self::LIFE && strlen($text) + $size <= self::SLOT - self::SLOT_HEAD) {
                $text .= $other.pack('Pn', $changed, strlen($kept)).$kept;
            }
        }
        $text = pack('VP', strlen($text), $number).$text;

        return pack('V', crc32($text)).$text;
    }

    /**
     * Opens the file if it is not open, and locks it.
     *
     * @return resource
     */
    private function locked()
    {
        for ($try = 0; $try < 3; $try++) {
            if ($this->file === null || $this->pid !== getmypid()) { // a fork would share the lock
                $this->file = $this->open();
                $this->pid = getmypid();
                try {
                    $this->lock();
                    $this->prepare();
                } catch (StoreException $e) {
                    $this->file = null; // so that it is checked again, and the lock is free
                    throw $e;
                }
            } else {
                $this->lock();
            }
            if (fstat($this->file)['nlink'] > 0) {
                return $this->file;
            }
            $this->file = null; // it was removed: others use the new one
        }
        throw new StoreException("open $this->path: it is removed again and again");
    }

    private function lock(): void
    {
        $until = hrtime(true) + (int) ($this->lockWait * 1e9);
        for ($pause = 50; !flock($this->file, LOCK_EX | LOCK_NB); $pause = min(2 * $pause, 500)) {
            if (hrtime(true) + $pause * 1000 > $until) {
                throw new StoreException("lock $this->path: waited $this->lockWait s: another process holds the lock and does not go on");
            }
            usleep($pause);
        }
    }

    /** @return resource */
    private function open()
    {
        $this->checkDirectory(dirname($this->path));
        clearstatcache();
        $before = @lstat($this->path);
        if ($before === false) {
            $file = @fopen($this->path, 'x+e');
            if ($file !== false) {
                @chmod($this->path, 0600);
                stream_set_read_buffer($file, 0);

                return $file;
            }
            clearstatcache();
            $before = @lstat($this->path); // another process was quicker
        }
        if ($before === false) {
            throw $this->failure("make $this->path");
        }
        if (($before['mode'] & 0170000) !== 0100000) {
            throw new StoreException("open $this->path: it is no regular file: choose another path");
        }
        $file = @fopen($this->path, 'r+e');
        if ($file === false) {
            throw $this->failure("open $this->path");
        }
        $after = fstat($file);
        if (PHP_OS_FAMILY !== 'Windows') {
            if ($after['ino'] !== $before['ino'] || $after['dev'] !== $before['dev']) {
                throw new StoreException("open $this->path: it was replaced meanwhile");
            }
            if ($after['uid'] !== self::user()) {
                throw new StoreException(sprintf('open %s: it is of user %d, and this process runs as %d: run both as one user', $this->path, $after['uid'], self::user()));
            }
            if (($after['mode'] & 0022) !== 0) {
                throw new StoreException("open $this->path: other users can write to it: chmod 600 it");
            }
        }
        stream_set_read_buffer($file, 0);

        return $file;
    }

    private function checkDirectory(string $directory): void
    {
        $stat = @stat($directory);
        if ($stat === false) {
            if (!@mkdir($directory, 0700, true)) {
                $failure = $this->failure("make the directory $directory");
            }
            clearstatcache();
            $stat = @stat($directory);
        }
        if ($stat === false || ($stat['mode'] & 0170000) !== 0040000) {
            throw $failure ?? new StoreException("make the directory $directory: it is a file");
        }
        if (PHP_OS_FAMILY === 'Windows') {
            return;
        }
        $sticky = ($stat['mode'] & 01000) !== 0; // as /tmp: nobody can replace another's file
        if (($stat['mode'] & 0022) !== 0 && !$sticky || !in_array($stat['uid'], [0, self::user()], true)) {
            throw new StoreException("open $this->path: other users can write to its directory: name one below it, which will be made for this user only");
        }
    }

    /** Returns the user id that this process runs as. */
    private static function user(): int
    {
        static $user = null;

        return $user ??= function_exists('posix_geteuid') ? posix_geteuid() : fstat(tmpfile())['uid'];
    }

    /** Writes the head of a new file and gives it its full size, or checks the head. */
    private function prepare(): void
    {
        $size = fstat($this->file)['size'];
        $head = $size === 0 ? '' : $this->read($this->file, 0, min($size, strlen(self::MAGIC)));
        if ($head !== self::MAGIC) {
            if (!str_starts_with(self::MAGIC, $head)) {
                throw new StoreException("open $this->path: it holds something else: choose another path");
            }
            $this->write($this->file, 0, self::MAGIC);
            $size = max($size, strlen(self::MAGIC));
        }
        $full = self::HEAD + self::PAGES * 2 * self::SLOT;
        if ($size < $full) {
            $this->write($this->file, $size, str_repeat("\0", $full - $size));
        }
    }

    /** @param resource $file */
    private function read($file, int $at, int $length): string
    {
        $text = fseek($file, $at) === 0 ? @fread($file, $length) : false;
        if ($text === false || strlen($text) < $length) {
            if ($text !== false && fstat($file)['size'] < $at + $length) { // it was cut
                $this->prepare();

                return str_pad($text, $length, "\0");
            }
            throw $this->failure("read $this->path");
        }

        return $text;
    }

    /** @param resource $file */
    private function write($file, int $at, string $text): void
    {
        if (fseek($file, $at) !== 0 || @fwrite($file, $text) !== strlen($text)) {
            throw $this->failure("write $this->path");
        }
    }

    private function failure(string $what): StoreException
    {
        return new StoreException($what.': '.preg_replace('/^[^:]*: /', '', error_get_last()['message'] ?? 'it failed'));
    }
}
