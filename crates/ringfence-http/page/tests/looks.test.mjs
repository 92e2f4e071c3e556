// Accessibility of every view in both themes, narrow and wide.

import assert from "node:assert/strict";
import { readFile } from "node:fs/promises";
import { after, before, test } from "node:test";

import { populate, question } from "./scene.mjs";
import { api, AXE, browse, signIn, URL_, visit } from "./stage.mjs";

let browser;
let scene;
before(async () => {
  browser = await browse();
  scene = await populate();
});
after(async () => {
  await api("DELETE", `/v1/executions/${scene.running}`);
  await browser.close();
});

const views = () => ({
  overview: "#/overview",
  executions: "#/executions",
  execution: `#/executions/${scene.blocked}`,
  denials: "#/denials",
  asks: "#/asks",
  audit: "#/audit/alice",
  sandboxes: "#/sandboxes",
  sandbox: `#/sandboxes/${scene.sandbox}`,
  skills: "#/skills",
  agent: "#/skills/alice/helper",
  skill: "#/skills/alice/helper/report",
  tokens: "#/tenants",
  tenant: "#/tenants/alice",
  api: "#/api",
});

const EVERY_RULE = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"];
// A theme changes colours only: the elements are the same.
const COLOUR_RULES = { type: "rule", values: ["color-contrast", "link-in-text-block"] };

async function wrongs(page, runOnly = EVERY_RULE) {
  const found = await page.evaluate(async (rules) => {
    const { violations } = await globalThis.axe.run(document, { resultTypes: ["violations"], runOnly: rules });
    return violations.map(
      ({ id, nodes }) =>
        `${id}: ${nodes
          .slice(0, 3)
          .map((node) => `${node.html.slice(0, 160)} ${node.any[0]?.message ?? ""}`)
          .join(" | ")}`,
    );
  }, runOnly);
  const headings = await page.locator("h1").count();
  if (headings !== 1) found.push(`${headings} headings of the first level`);
  const beyond = await page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
  if (beyond > 0) found.push(`${beyond} px wider than the window`);
  return found;
}

for (const [theme, width] of [
  ["light", 360],
  ["light", 1280],
  ["dark", 1280],
]) {
  test(`every view can be read and used, ${theme}, ${width} px`, async () => {
    await question();
    const { page, faults, context } = await visit(browser, { theme, width, height: 900 });
    const axe = await readFile(AXE, "utf8");
    const all = {};
    const look = async (name) => {
      await page.evaluate(axe);
      const found = await wrongs(page, theme === "dark" ? COLOUR_RULES : EVERY_RULE);
      if (found.length > 0) all[name] = found;
    };
    await page.goto(URL_);
    await page.getByLabel("Token").waitFor();
    await look("sign in");
    await signIn(page);
    for (const [name, hash] of Object.entries(views())) {
      await page.goto(URL_ + hash);
      await page.waitForTimeout(200);
      await look(name);
    }
    if (width === 360) await page.getByRole("button", { name: "Menu" }).click();
    await look("menu");
    assert.deepEqual(all, {});
    assert.deepEqual(faults, []);
    await context.close();
  });
}

test("accessibility faults are detected", async () => {
  const { page, context } = await visit(browser);
  await signIn(page);
  await page.evaluate(await readFile(AXE, "utf8"));
  await page.evaluate(() => {
    const faint = document.createElement("p");
    faint.textContent = "faint";
    faint.style.color = "#ccc";
    const wide = document.createElement("div");
    wide.style.width = "3000px";
    wide.textContent = "wide";
    document
      .querySelector("main")
      .append(faint, wide, document.createElement("input"), document.createElement("button"), document.createElement("h1"));
  });
  const found = (await wrongs(page)).join("\n");
  for (const word of ["color-contrast", "label", "button-name", "2 headings", "px wider"])
    assert.ok(found.includes(word), `${word}: ${found}`);
  await context.close();
});

test("the theme follows the system until the user chooses one", async () => {
  const { page, context } = await visit(browser, { theme: "dark" });
  await signIn(page);
  const ground = () => page.evaluate(() => getComputedStyle(document.documentElement).backgroundColor);
  const dark = await ground();
  await page.getByRole("button", { name: "Theme: system" }).click();
  const light = await ground();
  assert.notEqual(light, dark);
  await page.reload();
  await page.getByRole("button", { name: "Theme: light" }).waitFor();
  assert.equal(await ground(), light);
  await context.close();
});
