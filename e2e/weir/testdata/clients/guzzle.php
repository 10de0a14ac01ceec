<?php
require '/usr/share/php/GuzzleHttp/autoload.php';
// SNIPPET
for ($n = 1; $n <= 75; $n++) {
    try {
        $r = $client->post(getenv('TARGET'), ['json' => ['n' => $n]]);
        echo $n, ' ', $r->getStatusCode(), "\n";
    } catch (Throwable $e) {
        echo $n, ' ', get_class($e), ' ', $e->getMessage(), "\n";
    }
}
