// A ping from the server, verified by other people's libraries.
import assert from "node:assert/strict";
import { createServer } from "node:http";
import { Webhook } from "standardwebhooks";
import Stripe from "stripe";

async function call(method, path, body) {
  const headers = { authorization: `Bearer ${process.env.GUILDHALL_TOKEN}`, "content-type": "application/json" };
  const answer = await fetch(process.env.GUILDHALL_URL + path, { method, headers, body: body && JSON.stringify(body) });
  const text = await answer.text();
  assert.ok(answer.ok, text);
  return text ? JSON.parse(text) : {};
}

const server = createServer();
const delivery = new Promise((resolve, reject) => {
  setTimeout(() => reject(new Error("no webhook within 20 seconds")), 20_000).unref();
  server.on("request", async (request, response) => {
    const chunks = [];
    for await (const chunk of request) chunks.push(chunk);
    response.writeHead(204).end();
    resolve({ headers: request.headers, body: Buffer.concat(chunks).toString() });
  });
});
await new Promise((listening) => server.listen(0, "127.0.0.1", listening));
const hook = (await call("POST", "/webhooks", { url: `http://127.0.0.1:${server.address().port}/hook`, events: ["case.created"] })).data;
try {
  await call("POST", `/webhooks/${hook.id}/test`);
  const { headers, body } = await delivery;
  const stripe = new Stripe("sk_test_none");
  for (const [name, verify] of Object.entries({
    "stripe.webhooks.signature.verifyHeader": (text) => stripe.webhooks.signature.verifyHeader(text, headers["service-signature"], hook.secret),
    "standardwebhooks Webhook.verify": (text) => new Webhook(hook.secret).verify(text, headers),
  })) {
    verify(body);
    assert.throws(() => verify(body.replace("ping", "pong")), /signature/i);
    console.log(`${name}: accepts the event, refuses a forged one`);
  }
} finally {
  await call("DELETE", `/webhooks/${hook.id}`);
  server.close();
  server.closeAllConnections();
}
