// The site is made of the Markdown files of the repository as they lie, so that every
// link works in both. A link that leads nowhere fails the build.
import { existsSync } from "node:fs";
import { resolve } from "node:path";
import { defineConfig } from "vitepress";

const root = resolve(import.meta.dirname, "../..");
// Where links begin that lead to files which are no pages; a test of the program holds
// each link against its own page's folder.
const folders = ["docs/operate", "examples", "examples/bot"];

const page = (text, link) => ({ text, link });

export default defineConfig({
  title: "Guildhall",
  description: "What a Discord bot knows about its servers, for programs that read and change it over HTTPS",
  srcDir: "..",
  srcExclude: ["**/node_modules/**", ".github/**", "build/**", "dist/**", "bin/**", "**/testdata/**"],
  rewrites: { "README.md": "index.md", "docs/bot/README.md": "docs/bot/index.md" },
  outDir: "../build/site",
  cacheDir: "../build/vitepress",
  // Files and folders of the repository that are no pages, pages of its hosting, and guildhall dev.
  ignoreDeadLinks: [/releases(\/latest)?$/, /^\.\.\/\.\.\/actions\//, /^https:\/\/localhost:/, (link) => folders.some((folder) => existsSync(resolve(root, folder, link)))],

  // README's badge is a picture that the hosting draws beside the repository.
  markdown: {
    config(md) {
      const image = md.renderer.rules.image;
      md.renderer.rules.image = (tokens, i, ...rest) =>
        tokens[i].attrGet("src").startsWith("../../actions/") ? "" : image(tokens, i, ...rest);
    },
  },

  // Pages lie outside the folder that has the packages.
  vite: { resolve: { alias: [{ find: /^vue(?=$|\/)/, replacement: resolve(root, "docs/node_modules/vue") }] } },
  themeConfig: {
    search: { provider: "local" },
    sidebar: [
      { text: "Integrate", items: [
        page("Your first program", "/docs/integrate/first-program"), page("Writes", "/docs/integrate/writes"),
        page("Webhooks", "/docs/integrate/webhooks"), page("Copies", "/docs/integrate/copies"), page("Draws", "/docs/integrate/draws"),
        page("Recipes", "/docs/recipes"),
      ] },
      { text: "Bot", items: [
        page("Yours and Guildhall's", "/docs/bot/"), page("Work", "/docs/bot/work"), page("Guild files", "/docs/bot/import"), page("From another bot", "/docs/bot/convert"),
      ] },
      { text: "Operate", items: [
        page("Install", "/docs/operate/install"), page("Run and upgrade", "/docs/operate/upgrade"), page("Backup", "/docs/operate/backup"),
        page("Two nodes", "/docs/operate/two-nodes"), page("Discord and dashboard", "/docs/operate/discord"),
        page("Settings", "/docs/operate/settings"), page("Commands", "/docs/operate/commands"), page("Connections", "/docs/operate/connections"),
        page("Metrics, alerts, traces", "/docs/operate/observe"), page("Doctor", "/docs/operate/doctor"), page("Sizes", "/docs/operate/sizes"),
        page("Citus", "/docs/operate/citus"),
      ] },
      { text: "Contribute", items: [
        page("Contributing", "/CONTRIBUTING"), page("Architecture", "/ARCHITECTURE"), page("Decisions", "/docs/decisions"),
        page("Measure and drill", "/bench/README"),
        page("Reliability", "/RELIABILITY"), page("Changelog", "/CHANGELOG"),
      ] },
    ],
  },
});
