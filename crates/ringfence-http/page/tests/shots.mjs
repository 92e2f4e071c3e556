// Screenshots of every view, light and dark, narrow and wide:
//
//   RINGFENCE_PAGE_SHOTS=target/page-shots node crates/ringfence-http/page/tests/shots.mjs
//
// with the variables that stage.mjs names.

import { mkdir } from "node:fs/promises";
import path from "node:path";

import { populate } from "./scene.mjs";
import { browse, signIn, URL_, visit } from "./stage.mjs";

const place = process.env.RINGFENCE_PAGE_SHOTS ?? "target/page-shots";
const only = process.argv.slice(2);
await mkdir(place, { recursive: true });
const { blocked, running } = await populate();
const views = {
  overview: "#/overview",
  executions: "#/executions",
  blocked: `#/executions/${blocked}`,
  running: `#/executions/${running}`,
  denials: "#/denials",
  asks: "#/asks",
  audit: "#/audit/alice",
  skills: "#/skills",
  shelf: "#/skills/alice/helper",
  skill: "#/skills/alice/helper/report",
  run: "#/skills/alice/helper/report",
  tokens: "#/tenants",
  tenant: "#/tenants/alice",
  api: "#/api",
};
const browser = await browse();
for (const theme of ["light", "dark"]) {
  for (const width of [390, 1280]) {
    const { page, faults } = await visit(browser, { width, height: width === 390 ? 844 : 860, theme });
    const shot = async (name) => {
      if (only.length > 0 && !only.includes(name)) return;
      await page.waitForTimeout(500);
      await page.screenshot({ path: path.join(place, `${name}-${theme}-${width}.png`), fullPage: false });
      const beyond = await page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
      if (beyond > 0) console.log(`${name}-${theme}-${width}: ${beyond} px too wide`);
    };
    await page.goto(URL_);
    await shot("sign-in");
    await signIn(page);
    for (const [name, hash] of Object.entries(views)) {
      if (only.length > 0 && !only.includes(name)) continue;
      await page.goto(URL_ + hash);
      if (name === "run") {
        await page.getByRole("tab", { name: "Run" }).click();
        await page.getByLabel("Bash command").fill("python3 scripts/report.py; python3 scripts/outside.py");
        await page.keyboard.press("Control+Enter");
        await page.getByRole("link", { name: "The execution" }).waitFor();
      }
      if (name === "api") {
        await page.locator("summary", { hasText: "/v1/me" }).click();
        await page.getByRole("button", { name: "Send" }).click();
        await page.getByLabel("Answer", { exact: true }).waitFor();
      }
      if (name === "denials") await page.locator(".why summary").first().click();
      await shot(name);
    }
    if (only.length === 0 || only.includes("record")) {
      await page.goto(`${URL_}#/audit/alice`);
      await page.locator("button.row").first().click();
      await shot("record");
      await page.keyboard.press("Escape");
    }
    if (only.length === 0 || only.includes("keys")) {
      await page.locator("main h1").focus();
      await page.keyboard.press("?");
      await shot("keys");
      await page.keyboard.press("Escape");
    }
    if (width === 390 && (only.length === 0 || only.includes("menu"))) {
      await page.getByRole("button", { name: "Menu" }).click();
      await shot("menu");
    }
    if (faults.length > 0) console.log(theme, width, faults);
    await page.context().close();
  }
}
await browser.close();
process.exit(0);
