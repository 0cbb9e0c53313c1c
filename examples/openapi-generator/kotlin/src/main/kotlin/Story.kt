// The short story of an integration, with a client by openapi-generator.
// GUILDHALL_URL, GUILDHALL_TOKEN and GUILDHALL_CA say where and who.
import com.standardwebhooks.Webhook
import com.standardwebhooks.exceptions.WebhookVerificationException
import java.io.File
import java.net.URI
import java.net.http.HttpClient
import java.net.http.HttpRequest
import java.net.http.HttpResponse.BodyHandlers
import java.security.KeyStore
import java.security.cert.CertificateFactory
import java.util.UUID
import javax.net.ssl.SSLContext
import javax.net.ssl.TrustManagerFactory
import javax.net.ssl.X509TrustManager
import okhttp3.OkHttpClient
import org.openapitools.client.apis.CasesApi
import org.openapitools.client.apis.EconomyApi
import org.openapitools.client.apis.MetaApi
import org.openapitools.client.apis.WebhooksApi
import org.openapitools.client.infrastructure.ApiClient
import org.openapitools.client.infrastructure.ClientError
import org.openapitools.client.infrastructure.ClientException
import org.openapitools.client.infrastructure.Serializer
import org.openapitools.client.models.AckWebhookEventsRequest
import org.openapitools.client.models.AdjustBalanceRequest
import org.openapitools.client.models.AdjustBalancesRequest
import org.openapitools.client.models.CaseStatusFilter
import org.openapitools.client.models.CaseTypeFilter
import org.openapitools.client.models.CreateWebhookEndpointRequest
import org.openapitools.client.models.EventPing
import org.openapitools.client.models.PullWebhookEventsRequest
import org.openapitools.client.models.WebhookEventType

const val USER = "190320984123768832"

/** Trusts the certificate authority of a development server, if there is one. */
fun http(): OkHttpClient {
    val ca = System.getenv("GUILDHALL_CA") ?: return OkHttpClient()
    val store = KeyStore.getInstance(KeyStore.getDefaultType()).apply { load(null) }
    store.setCertificateEntry("ca", File(ca).inputStream().use { CertificateFactory.getInstance("X.509").generateCertificate(it) })
    val trust = TrustManagerFactory.getInstance(TrustManagerFactory.getDefaultAlgorithm()).apply { init(store) }.trustManagers
    val tls = SSLContext.getInstance("TLS").apply { init(null, trust, null) }
    return OkHttpClient.Builder().sslSocketFactory(tls.socketFactory, trust[0] as X509TrustManager).build()
}

fun main() {
    val url = System.getenv("GUILDHALL_URL")
    ApiClient.accessToken = System.getenv("GUILDHALL_TOKEN")
    val client = http()
    val economy = EconomyApi(url, client)

    val me = MetaApi(url, client).getMe()
    println("token ${me.token.preview} of guild ${me.token.guildId}, ${me.token.scopes.size} scopes")

    // Pay a member, twice with one key: the second answer is the first one again.
    val key = UUID.randomUUID().toString()
    val payment = AdjustBalanceRequest(USER, 30, "Event prize", "kotlin-$key")
    val first = economy.adjustBalance(payment, key)
    check(economy.adjustBalance(payment, key) == first) { "the second answer is another one" }
    check(economy.listLedgerEntries(reference = "kotlin-$key").`data`.map { it.id } == listOf(first.`data`.ledgerEntry.id))
    println("paid once: ${first.`data`.ledgerEntry.id}")

    val cases = CasesApi(url, client).listCases(type = CaseTypeFilter.warn, status = CaseStatusFilter.active).`data`
    check(cases.isNotEmpty() && cases.all { it.type == "warn" })
    println("cases: ${cases.size} active warnings")

    // A failure is an exception with a code.
    try {
        economy.adjustBalance(AdjustBalanceRequest(USER, -9007199254740991))
        error("not refused")
    } catch (e: ClientException) {
        val body = (e.response as ClientError<*>).body.toString()
        check(body.contains("\"balance_would_be_negative\"")) { body }
        println("refused: ${e.statusCode}")
    }
    val webhooks = WebhooksApi(url, client)
    receive(webhooks, key)
    payday(economy, webhooks)
}

/** Registers a receiver, has it pinged and verifies the raw bytes. */
fun receive(webhooks: WebhooksApi, path: String) {
    val url = System.getenv("GUILDHALL_RECEIVER") + "/" + path
    val hook = webhooks.createWebhookEndpoint(CreateWebhookEndpointRequest(events = listOf(WebhookEventType.casePeriodCreated), url = url)).`data`
    val delivery = try {
        webhooks.testWebhookEndpoint(hook.id)
        val inbox = URI.create(System.getenv("GUILDHALL_INBOX") + "/" + path)
        HttpClient.newHttpClient().send(HttpRequest.newBuilder(inbox).build(), BodyHandlers.ofString())
    } finally {
        webhooks.deleteWebhookEndpoint(hook.id)
    }
    val webhook = Webhook(hook.secret)
    webhook.verify(delivery.body(), delivery.headers().map())
    try {
        webhook.verify(delivery.body() + " ", delivery.headers().map())
        error("a forged body passes")
    } catch (_: WebhookVerificationException) {
    }
    val event = Serializer.moshi.adapter(EventPing::class.java).fromJson(delivery.body())!!
    check(event.`data`.webhookId == hook.id) { "the ping is for ${event.`data`.webhookId}" }
    println("webhook: ${event.type} ${event.id}, verified")
}

/**
 * Pays a thousand members in ten calls, a hundred at a time: all of them or none. Each payment
 * has a reference, so that none is made twice, however often the call is sent.
 */
fun payday(economy: EconomyApi, webhooks: WebhooksApi) {
    val endpoint = CreateWebhookEndpointRequest(events = listOf(WebhookEventType.economyPeriodBalance_changed), delivery = CreateWebhookEndpointRequest.Delivery.pull)
    val hook = webhooks.createWebhookEndpoint(endpoint).`data`.id
    val seen = mutableSetOf<String>()
    try {
        repeat(10) { call ->
            val members = (0..99).map { "${800000000000000000 + call * 100 + it}" }
            val paid = economy.adjustBalances(AdjustBalancesRequest(members.map { AdjustBalanceRequest(it, 5, reference = "$hook/$it") }))
            check(paid.`data`.size == 100)
        }
        // A worker waits until there is something, does its work with each event that it has
        // not seen, and acknowledges them.
        while (seen.size < 1000) {
            val ids = webhooks.pullWebhookEvents(hook, PullWebhookEventsRequest(wait = 5)).`data`.map { it.id }
            check(ids.isNotEmpty()) { "no event came" }
            seen += ids
            check(webhooks.ackWebhookEvents(hook, AckWebhookEventsRequest(eventIds = ids)).`data`.settledCount == ids.size)
        }
    } finally {
        webhooks.deleteWebhookEndpoint(hook)
    }
    println("payday: 1000 members in 10 calls, ${seen.size} events fetched and acknowledged")
}
