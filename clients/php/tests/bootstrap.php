<?php

declare(strict_types=1);

// Composer's autoloader if there is one, else Debian's packages.
$composer = __DIR__.'/../vendor/autoload.php';
if (is_file($composer)) {
    require $composer;
} else {
    require __DIR__.'/../autoload.php';
    foreach (['GuzzleHttp/autoload.php', 'Symfony/Component/HttpClient/autoload.php', 'Nyholm/Psr7/autoload.php', 'Psr/Http/Client/autoload.php'] as $file) {
        if (is_file('/usr/share/php/'.$file)) {
            require_once '/usr/share/php/'.$file;
        }
    }
}
spl_autoload_register(static function (string $class): void {
    $prefix = 'Weir\\Pacer\\Tests\\';
    if (str_starts_with($class, $prefix)) {
        require __DIR__.'/'.strtr(substr($class, strlen($prefix)), '\\', '/').'.php';
    }
});
