//! The short story of an integration, with a client by openapi-generator.
//! GUILDHALL_URL, GUILDHALL_TOKEN and GUILDHALL_CA say where and who.
use openapi::apis::{cases_api, configuration::Configuration, economy_api, meta_api, webhooks_api, Error};
use openapi::models::create_webhook_endpoint_request::Delivery;
use openapi::models::{
    AckWebhookEventsRequest, AdjustBalanceRequest, AdjustBalancesRequest, CaseStatusFilter, CaseTypeFilter, CreateWebhookEndpointRequest, EventPing,
    PullWebhookEventsRequest, WebhookEventType,
};
use standardwebhooks::Webhook;
use std::{collections::HashSet, env, fs, process, time::SystemTime};

const USER: &str = "190320984123768832";

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut client = reqwest::Client::builder();
    if let Ok(ca) = env::var("GUILDHALL_CA") {
        client = client.add_root_certificate(reqwest::Certificate::from_pem(&fs::read(ca)?)?);
    }
    let api = Configuration {
        base_path: env::var("GUILDHALL_URL")?,
        bearer_access_token: Some(env::var("GUILDHALL_TOKEN")?),
        client: client.build()?,
        ..Configuration::default()
    };

    let me = meta_api::get_me(&api).await?;
    println!("token {} of guild {}, {} scopes", me.token.preview, me.token.guild_id, me.token.scopes.len());

    // Pay a member, twice with one key: the second answer is the first one again.
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH)?.as_nanos();
    let key = format!("rust-{}-{now}", process::id());
    let payment = AdjustBalanceRequest {
        reason: Some(Some("Event prize".into())),
        reference: Some(Some(key.clone())),
        ..AdjustBalanceRequest::new(USER.into(), 30)
    };
    let first = economy_api::adjust_balance(&api, payment.clone(), Some(&key)).await?;
    let again = economy_api::adjust_balance(&api, payment, Some(&key)).await?;
    assert_eq!(first, again);
    let ledger = economy_api::list_ledger_entries(&api, None, Some(&key), None, None, None).await?;
    assert_eq!(ledger.data.iter().map(|e| &e.id).collect::<Vec<_>>(), [&first.data.ledger_entry.id]);
    println!("paid once: {}", first.data.ledger_entry.id);

    let (warn, active) = (Some(CaseTypeFilter::Warn), Some(CaseStatusFilter::Active));
    let cases = cases_api::list_cases(&api, None, warn, active, None, None, None, None, None, None, None).await?;
    assert!(!cases.data.is_empty() && cases.data.iter().all(|c| c.r#type == "warn"));
    println!("cases: {} active warnings", cases.data.len());

    // Every optional member null says the same as none.
    let nulls = AdjustBalanceRequest { reason: Some(None), reference: Some(None), ..AdjustBalanceRequest::new(USER.into(), 0) };
    economy_api::adjust_balance(&api, nulls, None).await?;

    // A failure is a value with a code.
    let much = AdjustBalanceRequest::new(USER.into(), -9007199254740991);
    match economy_api::adjust_balance(&api, much, None).await {
        Err(Error::ResponseError(r)) if r.content.contains("\"balance_would_be_negative\"") => println!("refused: {}", r.status),
        other => panic!("not refused: {other:?}"),
    }

    // Register a receiver, have it pinged, verify the raw bytes.
    let endpoint = CreateWebhookEndpointRequest {
        url: Some(Some(format!("{}/{key}", env::var("GUILDHALL_RECEIVER")?))),
        ..CreateWebhookEndpointRequest::new(vec![WebhookEventType::CaseCreated])
    };
    let hook = *webhooks_api::create_webhook_endpoint(&api, endpoint, None).await?.data;
    webhooks_api::test_webhook_endpoint(&api, &hook.id, None).await?;
    let delivery = reqwest::get(format!("{}/{key}", env::var("GUILDHALL_INBOX")?)).await?;
    webhooks_api::delete_webhook_endpoint(&api, &hook.id, None).await?;
    let (headers, body) = (delivery.headers().clone(), delivery.bytes().await?);
    let webhook = Webhook::new(&hook.secret)?;
    webhook.verify(&body, &headers)?;
    assert!(webhook.verify(&[&body[..], b" "].concat(), &headers).is_err());
    let event: EventPing = serde_json::from_slice(&body)?;
    assert_eq!(event.data.webhook_id, hook.id);
    println!("webhook: {} {}, verified", event.r#type, event.id);
    payday(&api).await
}

/// Pays a thousand members in ten calls, a hundred at a time: all of them or none. Each payment
/// has a reference, so that none is made twice, however often the call is sent.
async fn payday(api: &Configuration) -> Result<(), Box<dyn std::error::Error>> {
    let endpoint = CreateWebhookEndpointRequest {
        delivery: Some(Some(Delivery::Pull)),
        ..CreateWebhookEndpointRequest::new(vec![WebhookEventType::EconomyBalanceChanged])
    };
    let hook = webhooks_api::create_webhook_endpoint(api, endpoint, None).await?.data.id;
    for call in 0..10u64 {
        let members = (0..100).map(|i| (800000000000000000 + call * 100 + i).to_string());
        let list = members.map(|m| AdjustBalanceRequest { reference: Some(Some(format!("{hook}/{m}"))), ..AdjustBalanceRequest::new(m, 5) });
        let paid = economy_api::adjust_balances(api, AdjustBalancesRequest::new(list.collect()), None).await?;
        assert_eq!(paid.data.len(), 100);
    }
    // A worker waits until there is something, does its work with each event that it has not
    // seen, and acknowledges them.
    let mut seen = HashSet::new();
    while seen.len() < 1000 {
        let pull = PullWebhookEventsRequest { wait: Some(Some(10)), ..PullWebhookEventsRequest::new() };
        let got = webhooks_api::pull_webhook_events(api, &hook, Some(pull)).await?;
        let ids: Vec<String> = got.data.into_iter().map(|event| event.id).collect();
        assert!(!ids.is_empty(), "no event came");
        seen.extend(ids.iter().cloned());
        let count = ids.len();
        let ack = AckWebhookEventsRequest { event_ids: Some(Some(ids)), ..AckWebhookEventsRequest::new() };
        let done = webhooks_api::ack_webhook_events(api, &hook, ack, None).await?;
        assert_eq!(done.data.settled_count as usize, count);
    }
    webhooks_api::delete_webhook_endpoint(api, &hook, None).await?;
    println!("payday: 1000 members in 10 calls, {} events fetched and acknowledged", seen.len());
    Ok(())
}
