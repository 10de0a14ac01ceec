<?php
// Routes as Symfony, Laminas and Yii do, or did, behind IIS: by the fields that override the path
// and the method.
$method = $_SERVER['HTTP_X_HTTP_METHOD_OVERRIDE'] ?? $_SERVER['REQUEST_METHOD'];
$path = explode('?', $_SERVER['HTTP_X_REWRITE_URL'] ?? $_SERVER['REQUEST_URI'])[0];
file_put_contents(__DIR__ . '/asked', "$method $path\n", FILE_APPEND);
$lines = [];
foreach ($_SERVER as $name => $value) {
    if (is_string($value)) {
        $lines[] = "$name=$value";
    }
}
sort($lines);
header('Content-Type: text/plain');
echo "$method $path\n" . implode("\n", $lines) . "\n";
