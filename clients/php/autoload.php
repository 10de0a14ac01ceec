<?php

declare(strict_types=1);

// Loads the package where Composer does not.
spl_autoload_register(static function (string $class): void {
    $prefix = 'Weir\\Pacer\\';
    if (str_starts_with($class, $prefix)) {
        $file = __DIR__.'/src/'.strtr(substr($class, strlen($prefix)), '\\', '/').'.php';
        if (is_file($file)) {
            require $file;
        }
    }
});
