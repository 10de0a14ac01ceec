<?php

declare(strict_types=1);

namespace Weir\Pacer;

/**
 * The budgets of one host and credential whose requests no route covers. All begin with one budget.
 * If the responses to a path describe another one, that path gets a budget of its own, so that two
 * limiters under one credential do not stall each other.
 *
 * Two responses describe different budgets if the server names them differently, if their limits
 * differ, or if their Resets are farther apart than one window can explain. A path whose own
 * responses change keeps its budget: its limiter has several windows, or was changed.
 *
 * Places (a method and a path without identifiers) and names are kept as hashes of eight bytes.
 *
 * @internal
 */
final class Family
{
    public const MAIN = "\0\0\0\0\0\0\0\0";
    private const MAX_LINES = 32;
    private const MAX_PLACES = 200;

    /** @var array<string, string> the name of each budget, MAIN if unknown, by its place */
    private array $names = [self::MAIN => self::MAIN];

    /** @var array<string, string> the budget of each place that has been answered */
    private array $of = [];

    /** Returns the place of a request. */
    public static function place(Call $call): string
    {
        $segments = explode('/', $call->path);
        foreach ($segments as &$s) {
            if (self::isId($s)) {
                $s = '*';
            }
        }

        return self::hash($call->method.' '.implode('/', $segments));
    }

    /**
     * Reports whether a segment of a path looks like an identifier: it is long, or it has a digit
     * and is no version (v1).
     */
    private static function isId(string $segment): bool
    {
        $length = strlen($segment);
        if ($length > 40) {
            return true;
        }
        if ($length > 1 && $length <= 4 && ($segment[0] === 'v' || $segment[0] === 'V')) {
            return false;
        }

        return strpbrk($segment, '0123456789') !== false;
    }

    public static function name(string $name): string
    {
        return $name === '' ? self::MAIN : self::hash($name);
    }

    private static function hash(string $text): string
    {
        return substr(hash('sha256', $text, true), 0, 8);
    }

    /** Returns the budget of a place: the place that it is of, MAIN if it has not been answered. */
    public function line(string $place): string
    {
        return $this->of[$place] ?? self::MAIN;
    }

    /** @return list<string> the budgets, MAIN first */
    public function lines(): array
    {
        return array_map('strval', array_keys($this->names));
    }

    /** Returns the budget of an answered place unless it has another name, else null. */
    public function settled(string $place, string $name): ?string
    {
        $line = $this->of[$place] ?? null;

        return $line !== null && $this->canBe($line, $name) ? $line : null;
    }

    /** Reports whether the name of a budget is this one or unknown. */
    public function canBe(string $line, string $name): bool
    {
        return $name === self::MAIN || in_array($this->names[$line] ?? self::MAIN, [self::MAIN, $name], true);
    }

    public function isNamed(string $line, string $name): bool
    {
        return ($this->names[$line] ?? self::MAIN) === $name;
    }

    public function isFull(): bool
    {
        return count($this->names) >= self::MAX_LINES;
    }

    /** Records whose budget the responses to a place describe. */
    public function assign(string $place, string $line, string $name): void
    {
        if (!isset($this->names[$line])) {
            if ($this->isFull()) {
                return;
            }
            $this->names[$line] = self::MAIN;
        }
        if ($name !== self::MAIN) {
            $this->names[$line] = $name;
        }
        if (isset($this->of[$place]) || count($this->of) < self::MAX_PLACES) {
            $this->of[$place] = $line;
        }
    }

    public function encode(): string
    {
        $out = pack('CC', count($this->names), count($this->of));
        foreach ($this->names as $line => $name) {
            $out .= $line.$name;
        }
        foreach ($this->of as $place => $line) {
            $out .= $place.$line;
        }

        return $out;
    }

    /** Returns the family of an encoded form; an empty one if the form is broken. */
    public static function decode(string $text): self
    {
        $f = new self();
        if (strlen($text) < 2) {
            return $f;
        }
        $lines = ord($text[0]);
        $places = ord($text[1]);
        if (strlen($text) !== 2 + 16 * ($lines + $places)) {
            return $f;
        }
        foreach (str_split(substr($text, 2), 16) as $i => $pair) {
            [$key, $value] = str_split($pair, 8);
            if ($i < $lines) {
                $f->names[$key] = $value;
            } elseif (isset($f->names[$value])) {
                $f->of[$key] = $value;
            }
        }

        return $f;
    }
}
