# frozen_string_literal: true

# The short story of an integration, with a client by openapi-generator.
# GUILDHALL_URL, GUILDHALL_TOKEN and GUILDHALL_CA say where and who.
$LOAD_PATH.unshift File.join(__dir__, 'generated/lib')
require 'openapi_client'
require 'openssl'
require 'securerandom'
require 'uri'

def check(claim, otherwise)
  raise otherwise unless claim
end

# Says whether the header signs exactly these bytes with this secret.
def verified?(header, body, secret)
  parts = header.split(',').map { |part| part.split('=', 2) }
  time = parts.assoc('t')&.last
  return false if time.nil? || (Time.now.to_i - time.to_i).abs > 300

  want = OpenSSL::HMAC.hexdigest('SHA256', secret, "#{time}.#{body}")
  parts.any? { |name, got| name == 'v1' && OpenSSL.secure_compare(got, want) } # one per secret while a secret is being rotated
end

USER = '190320984123768832'
OpenapiClient.configure do |config|
  url = URI(ENV.fetch('GUILDHALL_URL'))
  config.scheme = url.scheme
  config.host = "#{url.host}:#{url.port}"
  config.base_path = url.path
  config.server_index = nil # else the document's own servers count
  config.access_token = ENV.fetch('GUILDHALL_TOKEN')
  config.ssl_ca_cert = ENV.fetch('GUILDHALL_CA', nil)
end
economy = OpenapiClient::EconomyApi.new
cases = OpenapiClient::CasesApi.new
webhooks = OpenapiClient::WebhooksApi.new

me = OpenapiClient::MetaApi.new.get_me
puts "token #{me.token.preview} of guild #{me.token.guild_id}, #{me.token.scopes.length} scopes"

# Pay a member, twice with one key: the second answer is the first one again.
key = SecureRandom.uuid
payment = OpenapiClient::AdjustBalanceRequest.new(user_id: USER, delta: 30, reason: 'Event prize', reference: "ruby-#{key}")
first, = economy.adjust_balance_with_http_info(payment, idempotency_key: key)
again, _, headers = economy.adjust_balance_with_http_info(payment, idempotency_key: key)
check(again == first && headers['Idempotent-Replay'] == 'true', 'the second answer is another one')
ledger = economy.list_ledger_entries(reference: "ruby-#{key}").data
check(ledger.map(&:id) == [first.data.ledger_entry.id], 'the ledger has not that one entry')
puts "paid once: #{ledger[0].id}"

# A reason is text as people write it.
filed = OpenapiClient::CreateCaseRequest.new(user_id: USER, moderator_id: '1344871507951616014',
                                             type: OpenapiClient::CreatableCaseType::NEW_WARN, reason: 'Spam — zum 2. Mal 👋')
filed = cases.create_case(filed).data
check(filed.reason == 'Spam — zum 2. Mal 👋', 'another reason')
list = cases.list_cases(type: OpenapiClient::CaseTypeFilter::WARN, status: OpenapiClient::CaseStatusFilter::ACTIVE).data
check(list[0].id == filed.id, 'the new case does not lead the list')
puts "cases: #{list.length} active warnings"

# A failure is an exception with a code.
begin
  economy.adjust_balance(OpenapiClient::AdjustBalanceRequest.new(user_id: USER, delta: -9_007_199_254_740_991))
  check(false, 'not refused')
rescue OpenapiClient::ApiError => e
  failure = OpenapiClient::Failure.build_from_hash(JSON.parse(e.response_body))
  check(failure.error.code == 'balance_would_be_negative', "refused with #{failure.error.code}")
  puts "refused: #{failure.error.code}"
end

# Register a receiver, have it pinged, verify the raw bytes.
hook = webhooks.create_webhook_endpoint(OpenapiClient::CreateWebhookEndpointRequest.new(
                                          url: "#{ENV.fetch('GUILDHALL_RECEIVER')}/#{key}", events: [OpenapiClient::WebhookEventType::CASE_CREATED]
                                        )).data
begin
  webhooks.test_webhook_endpoint(hook.id)
  delivery = Typhoeus.get("#{ENV.fetch('GUILDHALL_INBOX')}/#{key}", cainfo: ENV.fetch('GUILDHALL_CA', nil))
ensure
  webhooks.delete_webhook_endpoint(hook.id)
end
body = delivery.body
signature = delivery.headers['Service-Signature']
check(verified?(signature, body, hook.secret), 'the signature does not fit')
check(!verified?(signature, "#{body} ", hook.secret), 'a forged body passes')
event = OpenapiClient::EventPing.build_from_hash(JSON.parse(body, symbolize_names: true))
check(event.data.webhook_id == hook.id, 'a ping for another endpoint')
puts "webhook: #{event.type} #{event.id}, verified"

# Pay a hundred members in one call, all of them or none, and have a worker fetch the events.
hook = webhooks.create_webhook_endpoint(OpenapiClient::CreateWebhookEndpointRequest.new(
                                          delivery: 'pull', events: [OpenapiClient::WebhookEventType::ECONOMY_BALANCE_CHANGED]
                                        )).data.id
begin
  adjustments = (0...100).map do |n|
    member = (800_000_000_000_000_000 + n).to_s
    OpenapiClient::AdjustBalanceRequest.new(user_id: member, delta: 5, reference: "#{hook}/#{member}")
  end
  paid = economy.adjust_balances(OpenapiClient::AdjustBalancesRequest.new(adjustments: adjustments)).data
  check(paid.length == 100, 'not all were paid')
  seen = {}
  while seen.length < 100
    ids = webhooks.pull_webhook_events(hook, pull_webhook_events_request: OpenapiClient::PullWebhookEventsRequest.new(wait: 10)).data.map(&:id)
    check(!ids.empty?, 'no event came')
    ids.each { |id| seen[id] = true }
    done = webhooks.ack_webhook_events(hook, OpenapiClient::AckWebhookEventsRequest.new(event_ids: ids)).data
    check(done.settled_count == ids.length, 'not all were settled')
  end
ensure
  webhooks.delete_webhook_endpoint(hook)
end
puts "payday: 100 members in one call, #{seen.length} events fetched and acknowledged"
