import { defineConfig } from "@hey-api/openapi-ts";

// What is sent and what is answered goes through zod, by the contract's own rules.
export default defineConfig({
  input: "../../gen/openapi-3.1.yaml",
  output: "generated",
  logs: { file: false },
  plugins: ["@hey-api/client-fetch", "zod", { name: "@hey-api/sdk", validator: true }],
});
