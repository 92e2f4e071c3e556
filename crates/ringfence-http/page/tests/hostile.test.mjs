// Names, output and messages are untrusted. They always stay text.

import assert from "node:assert/strict";
import { after, before, test } from "node:test";

import { api, browse, signIn, upload, URL_, visit } from "./stage.mjs";

let browser;
before(async () => {
  browser = await browse();
});
after(() => browser.close());

const EVIL = "<img src=x onerror=alert(1)>";

test("markup and escapes in files, skills, commands and output are shown as text", async () => {
  await upload("eve", "helper", {
    "evil/SKILL.md": `---\nname: "${EVIL}"\ndescription: "<script>alert(2)</script>"\n---\n`,
    [`evil/${EVIL}.py`]: "print('<b>bold</b>')\nprint('\\x1b[31mred\\x1b[0m \\u202egnp.exe')\n",
  });
  const { page, faults, context } = await visit(browser);
  await signIn(page);
  const count = () => page.evaluate(() => document.querySelectorAll("main img, main script, main b.injected, iframe").length);
  await page.goto(`${URL_}#/skills/eve/helper`);
  await page.getByRole("link").filter({ hasText: EVIL }).waitFor();
  assert.equal(await count(), 0);
  await page.goto(`${URL_}#/skills/eve/helper/evil`);
  await page.getByRole("button").filter({ hasText: EVIL }).click();
  await page.getByLabel(/^Content of/).waitFor();
  await page.getByRole("tab", { name: "Run" }).click();
  await page.getByLabel("Bash command").fill("python3 *.py; echo '<svg onload=alert(3)>'; ls nowhere");
  await page.getByRole("button", { name: "Run", exact: true }).click();
  await page.getByText(/^exit 2 after/).waitFor();
  const out = await page.getByLabel("Standard output").textContent();
  assert.ok(out.includes("<b>bold</b>") && out.includes("\u241b[31mred") && out.includes("\u27e8U+202E\u27e9gnp.exe"), out);
  assert.ok(!/[\u001b\u202e]/.test(out));
  assert.equal(await count(), 0);
  await page.goto(`${URL_}#/executions`);
  await page.getByRole("link").filter({ hasText: "<svg onload=alert(3)>" }).waitFor();
  await page.goto(`${URL_}#/audit/eve`);
  await page.getByRole("row").filter({ hasText: "<svg onload=alert(3)>" }).first().waitFor();
  assert.equal(await count(), 0);
  // An invalid fragment shows a view, and none of its own text.
  await page.goto(`${URL_}#/executions/${encodeURIComponent(EVIL)}`);
  await page.getByText("no such execution").waitFor();
  assert.match(faults.splice(0).join(), /404/);
  await page.goto(`${URL_}#/%E0%A4%A`);
  await page.getByRole("heading", { level: 1, name: "Overview" }).waitFor();
  assert.deepEqual(faults, []);
  await context.close();
});

test("the Content-Security-Policy blocks everything but the page's own files", async () => {
  const answer = await fetch(URL_);
  const policy = answer.headers.get("content-security-policy");
  for (const part of ["default-src 'none'", "script-src 'self'", "frame-ancestors 'none'", "require-trusted-types-for 'script'"])
    assert.ok(policy.includes(part), policy);
  const { page, context } = await visit(browser);
  await page.goto(URL_);
  const refused = await page.evaluate(() => {
    try {
      document.body.innerHTML = "<b>x</b>";
      return "taken";
    } catch (error) {
      return error.name;
    }
  });
  assert.equal(refused, "TypeError");
  await context.close();
});

test("an unreachable service is reported, and the page reconnects", async () => {
  const { page, context } = await visit(browser);
  await page.route("**/v1/events", (route) => route.abort());
  await signIn(page);
  await page.locator("header .state", { hasText: "reconnecting" }).waitFor();
  await context.setOffline(true);
  await page.goto(`${URL_}#/audit`);
  await page.getByText("cannot reach the service").waitFor();
  await context.setOffline(false);
  await page.unroute("**/v1/events");
  await page.goto(`${URL_}#/executions`);
  await page.locator("header .state", { hasText: "live" }).waitFor({ timeout: 40_000 });
  const { id } = await api("POST", "/v1/skills/eve/helper/evil/execute?async=true", { command: "echo back again" });
  await page.locator(`a[href$="${id}"]`).waitFor();
  await context.close();
});
