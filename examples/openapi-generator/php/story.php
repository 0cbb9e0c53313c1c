<?php
// The short story of an integration, with a client by openapi-generator.
// GUILDHALL_URL, GUILDHALL_TOKEN and GUILDHALL_CA say where and who.
declare(strict_types=1);
if (file_exists(__DIR__ . '/generated/vendor/autoload.php')) {
    require __DIR__ . '/generated/vendor/autoload.php';
} else { // the distribution's Guzzle
    require '/usr/share/php/GuzzleHttp/autoload.php';
    spl_autoload_register(function (string $class): void {
        if (str_starts_with($class, 'OpenAPI\\Client\\')) {
            require __DIR__ . '/generated/lib/' . str_replace('\\', '/', substr($class, 15)) . '.php';
        }
    });
}

use OpenAPI\Client\{ApiException, Configuration};
use OpenAPI\Client\Api\{CasesApi, EconomyApi, MetaApi, WebhooksApi};
use OpenAPI\Client\Model\{AckWebhookEventsRequest, AdjustBalanceRequest, AdjustBalancesRequest, CaseStatusFilter, CaseTypeFilter, CreatableCaseType};
use OpenAPI\Client\Model\{CreateCaseRequest, CreateWebhookEndpointRequest, PullWebhookEventsRequest, WebhookEventType};

function check(bool $claim, string $otherwise): void
{
    if (!$claim) {
        throw new RuntimeException($otherwise);
    }
}

/** Says whether the header signs exactly these bytes with this secret. */
function verified(string $header, string $body, string $secret): bool
{
    preg_match('/(?:^|,)t=(\d{1,12})(?:,|$)/', $header, $time);
    preg_match_all('/(?:^|,)v1=([0-9a-f]{64})/', $header, $signatures); // one per secret while a secret is being rotated
    if (!isset($time[1]) || abs(time() - (int) $time[1]) > 300) {
        return false;
    }
    $want = hash_hmac('sha256', "$time[1].$body", $secret);
    return (bool) array_filter($signatures[1], fn (string $got): bool => hash_equals($want, $got));
}

const USER = '190320984123768832';
$config = (new Configuration())->setHost(getenv('GUILDHALL_URL'))->setAccessToken(getenv('GUILDHALL_TOKEN'));
$http = new GuzzleHttp\Client(['verify' => getenv('GUILDHALL_CA') ?: true]);
$economy = new EconomyApi($http, $config);
$cases = new CasesApi($http, $config);

$me = (new MetaApi($http, $config))->getMe();
printf("token %s of guild %s, %d scopes\n", $me->getToken()->getPreview(), $me->getToken()->getGuildId(), count($me->getToken()->getScopes()));

// Pay a member, twice with one key: the second answer is the first one again.
$key = bin2hex(random_bytes(16));
$payment = new AdjustBalanceRequest(['user_id' => USER, 'delta' => 30, 'reason' => 'Event prize', 'reference' => "php-$key"]);
[$first, , $headers] = $economy->adjustBalanceWithHttpInfo($payment, $key);
check(!isset($headers['Idempotent-Replay']), 'the first answer is a replay');
[$again, , $headers] = $economy->adjustBalanceWithHttpInfo($payment, $key);
check($again == $first && $headers['Idempotent-Replay'] === ['true'], 'the second answer is another one');
$ledger = $economy->listLedgerEntries(reference: "php-$key")->getData();
check(count($ledger) === 1 && $ledger[0]->getId() === $first->getData()->getLedgerEntry()->getId(), 'the ledger has not that one entry');
echo "paid once: {$ledger[0]->getId()}\n";

// A reason is text as people write it.
$case = $cases->createCase((new CreateCaseRequest())->setUserId(USER)->setModeratorId('1344871507951616014')
    ->setType(CreatableCaseType::NEW_WARN)->setReason('Spam — zum 2. Mal 👋'))->getData();
check($case->getReason() === 'Spam — zum 2. Mal 👋', 'another reason');
$list = $cases->listCases(type: CaseTypeFilter::WARN, status: CaseStatusFilter::ACTIVE)->getData();
check($list[0]->getId() === $case->getId(), 'the new case does not lead the list');
echo 'cases: ', count($list), " active warnings\n";

// Every optional member null says the same as none.
$economy->adjustBalance(new AdjustBalanceRequest(['user_id' => USER, 'delta' => 0, 'reason' => null, 'reference' => null]));

// A failure is an exception with a code.
try {
    $economy->adjustBalance(new AdjustBalanceRequest(['user_id' => USER, 'delta' => -9007199254740991]));
    check(false, 'not refused');
} catch (ApiException $e) {
    $code = $e->getResponseObject()->getError()->getCode();
    check($code === 'balance_would_be_negative', "refused with $code");
    echo "refused: $code\n";
}

// Register a receiver, have it pinged, verify the raw bytes.
$webhooks = new WebhooksApi($http, $config);
$hook = $webhooks->createWebhookEndpoint((new CreateWebhookEndpointRequest())
    ->setUrl(getenv('GUILDHALL_RECEIVER') . "/$key")->setEvents([WebhookEventType::CASE_CREATED]))->getData();
try {
    $webhooks->testWebhookEndpoint($hook->getId());
    $delivery = $http->get(getenv('GUILDHALL_INBOX') . "/$key");
} finally {
    $webhooks->deleteWebhookEndpoint($hook->getId());
}
$body = (string) $delivery->getBody();
$signature = $delivery->getHeaderLine('Service-Signature');
check(verified($signature, $body, $hook->getSecret()), 'the signature does not fit');
check(!verified($signature, "$body ", $hook->getSecret()), 'a forged body passes');
$event = OpenAPI\Client\ObjectSerializer::deserialize(json_decode($body), OpenAPI\Client\Model\EventPing::class);
check($event->getData()->getWebhookId() === $hook->getId(), 'a ping for another endpoint');
echo "webhook: {$event->getType()} {$event->getId()}, verified\n";

// Pay a thousand members in ten calls, a hundred at a time: all of them or none. Each payment
// has a reference, so that none is made twice, however often the call is sent.
$hook = $webhooks->createWebhookEndpoint((new CreateWebhookEndpointRequest())
    ->setDelivery('pull')->setEvents([WebhookEventType::ECONOMY_BALANCE_CHANGED]))->getData()->getId();
try {
    for ($call = 0; $call < 10; $call++) {
        $members = array_map(strval(...), range(800000000000000000 + 100 * $call, 800000000000000099 + 100 * $call));
        $list = array_map(fn (string $m) => new AdjustBalanceRequest(['user_id' => $m, 'delta' => 5, 'reference' => "$hook/$m"]), $members);
        check(count($economy->adjustBalances(new AdjustBalancesRequest(['adjustments' => $list]))->getData()) === 100, 'not all were paid');
    }
    // A worker waits until there is something, does its work with each event that it has not
    // seen, and acknowledges them.
    $seen = [];
    while (count($seen) < 1000) {
        $got = $webhooks->pullWebhookEvents($hook, new PullWebhookEventsRequest(['wait' => 10]))->getData();
        $ids = array_map(fn ($event) => $event->getId(), $got);
        check($ids !== [], 'no event came');
        $seen += array_flip($ids);
        $done = $webhooks->ackWebhookEvents($hook, new AckWebhookEventsRequest(['event_ids' => $ids]))->getData();
        check($done->getSettledCount() === count($ids), 'not all were settled');
    }
} finally {
    $webhooks->deleteWebhookEndpoint($hook);
}
printf("payday: 1000 members in 10 calls, %d events fetched and acknowledged\n", count($seen));
