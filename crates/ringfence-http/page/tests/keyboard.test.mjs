// The page with the keyboard only.

import assert from "node:assert/strict";
import { after, before, test } from "node:test";

import { api, browse, SECRET, TOKEN, until, upload, URL_, visit } from "./stage.mjs";

let browser;
before(async () => {
  browser = await browse();
});
after(() => browser.close());

const card = "---\nname: asks\ndescription: asks\n---\n";
const begin = () => api("POST", "/v1/skills/kay/helper/asks/execute?async=true", { command: "python3 ask.py", ask: true });
const focused = (page) =>
  page.evaluate(() => document.activeElement.textContent || document.activeElement.getAttribute("aria-label"));

test("signing in, finding a question and answering it needs no pointer", async () => {
  await upload("kay", "helper", { "asks/SKILL.md": card, "asks/ask.py": `print(len(open(${JSON.stringify(SECRET)}).read()))\n` });
  const { page, faults, context } = await visit(browser);
  await page.goto(URL_);
  await page.keyboard.type(TOKEN);
  await page.keyboard.press("Enter");
  await page.getByRole("heading", { level: 1, name: "Overview" }).waitFor();

  assert.equal(await focused(page), "Overview");
  await page.reload();
  await page.getByRole("heading", { level: 1, name: "Overview" }).waitFor();
  await page.keyboard.press("Tab");
  assert.equal(await focused(page), "Skip to content");
  await page.keyboard.press("Enter");
  assert.equal(await page.evaluate(() => document.activeElement.id), "main");
  await page.keyboard.press("g");
  await page.keyboard.press("e");
  await page.getByRole("heading", { level: 1, name: "Executions" }).waitFor();
  assert.equal(await focused(page), "Executions");

  // On another view the question waits below, and does not take the focus.
  const first = await begin();
  await page.locator(".dock .question").waitFor();
  assert.equal(await focused(page), "Executions");
  await page.keyboard.press("a");
  await page.waitForTimeout(700);
  assert.equal(await page.evaluate(() => document.activeElement.className), "question");
  await page.keyboard.press("Tab");
  assert.match(await focused(page), /Later/);
  while (!/^Deny/.test(await focused(page))) await page.keyboard.press("Tab");
  await page.keyboard.press("Enter");
  const denied = await until("its end", async () => {
    const status = await api("GET", `/v1/executions/${first.id}`);
    return status.endedMs && status;
  });
  assert.equal(denied.result.exitCode, 1);

  // In the Asks view, by number. The earlier denial is cached for a moment.
  await page.waitForTimeout(2100);
  await page.keyboard.press("g");
  await page.keyboard.press("a");
  await page.getByRole("heading", { level: 1, name: "Asks" }).waitFor();
  const second = await begin();
  await page.locator("main .question").waitFor();
  await page.keyboard.press("a");
  // Keys typed before the question could be read are ignored.
  await page.waitForTimeout(700);
  await page.keyboard.press("1");
  const allowed = await until("its end", async () => {
    const status = await api("GET", `/v1/executions/${second.id}`);
    return status.endedMs && status;
  });
  assert.equal(allowed.result.exitCode, 0);
  await page.getByText("No questions.").waitFor();
  assert.deepEqual(faults, []);
  await context.close();
});

test("typing in a text field triggers no shortcut, and Escape closes dialogs", async () => {
  const { page, faults, context } = await visit(browser);
  await page.goto(URL_);
  await page.keyboard.type(TOKEN);
  await page.keyboard.press("Enter");
  await page.getByRole("heading", { level: 1, name: "Overview" }).waitFor();
  await page.goto(`${URL_}#/denials`);
  await page.locator("main h1").focus();
  await page.keyboard.press("/");
  await page.keyboard.type("ge?");
  assert.equal(await page.getByLabel("Filter by text").inputValue(), "ge?");
  await page.locator("main h1").focus();
  await page.keyboard.press("?");
  await page.getByRole("dialog", { name: "Keyboard shortcuts" }).waitFor();
  await page.keyboard.press("Escape");
  assert.equal(await page.getByRole("dialog").count(), 0);
  assert.deepEqual(faults, []);
  await context.close();
});
