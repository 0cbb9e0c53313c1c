// A receiver of webhooks, as small as it can be and still be right: raw bytes,
// constant-time comparison, five minutes of tolerance.
import { createHmac, timingSafeEqual } from "node:crypto";
import { createServer, type IncomingMessage } from "node:http";
import type { AddressInfo } from "node:net";

/** Says whether the header signs exactly these bytes with this secret. */
export function verified(header: string, body: Buffer, secret: string, now = Date.now() / 1000): boolean {
  const parts = header.split(",").map((part) => part.split("=", 2));
  const time = parts.find(([name]) => name === "t")?.[1] ?? "";
  if (!/^\d+$/.test(time) || Math.abs(now - Number(time)) > 300) return false;
  const want = createHmac("sha256", secret).update(`${time}.`).update(body).digest();
  // There is one v1 per secret while a secret is being rotated.
  return parts.some(([name, value]) => {
    const got = Buffer.from(name === "v1" ? (value ?? "") : "", "hex");
    return got.length === want.length && timingSafeEqual(got, want);
  });
}

export interface Delivery {
  signature: string;
  body: Buffer;
}

/** Listens on a free port and resolves with the first delivery. */
export async function listen(): Promise<{ url: string; delivery: Promise<Delivery>; close: () => void }> {
  const server = createServer();
  const delivery = new Promise<Delivery>((resolve, reject) => {
    const patience = setTimeout(() => reject(new Error("no webhook within 20 seconds")), 20_000);
    server.on("request", (request: IncomingMessage, response) => {
      const chunks: Buffer[] = [];
      request.on("data", (chunk: Buffer) => chunks.push(chunk));
      request.on("end", () => {
        clearTimeout(patience);
        response.writeHead(204).end();
        resolve({ signature: String(request.headers["service-signature"]), body: Buffer.concat(chunks) });
      });
    });
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const { port } = server.address() as AddressInfo;
  return { url: `http://127.0.0.1:${port}/hook`, delivery, close: () => server.close() };
}
