// A user uploads a skill, edits it, runs it, and allows what it asks for.

import assert from "node:assert/strict";
import { after, before, test } from "node:test";

import { api, browse, SECRET, signIn, until, URL_, visit, zip } from "./stage.mjs";

let browser;
before(async () => {
  browser = await browse();
});
after(() => browser.close());

const SKILL = {
  "notes/SKILL.md": "---\nname: notes\ndescription: reads notes\n---\n# Notes\n",
  "notes/read.py": "import sys\nprint('begins', flush=True)\nprint(open(sys.argv[1]).read())\n",
};

test("a wrong token is rejected with a message, and a valid one is stored in the tab only", async () => {
  const { page, faults, context } = await visit(browser);
  await page.goto(URL_);
  await page.getByLabel("Token").fill("no-such-token-at-all");
  await page.getByRole("button", { name: "Sign in" }).click();
  await page.getByRole("alert").filter({ hasText: "missing or unknown token" }).waitFor();
  // The browser logs the 401 response.
  assert.match(faults.splice(0).join(), /401/);
  await signIn(page);
  assert.equal(await page.evaluate(() => localStorage.length + document.cookie.length), 0);
  const other = await context.newPage();
  await other.goto(URL_);
  await other.getByLabel("Token").waitFor();
  await page.reload();
  await page.getByRole("heading", { level: 1, name: "Overview" }).waitFor();
  await page.getByRole("button", { name: "Sign out" }).click();
  await page.getByLabel("Token").waitFor();
  assert.equal(await page.evaluate(() => sessionStorage.length), 0);
  assert.deepEqual(faults, []);
  await context.close();
});

test("upload, browse, edit, run, denial, question, grant, and audit record", async () => {
  const { page, faults, context } = await visit(browser);
  await signIn(page);
  await page.locator("nav").getByRole("link", { name: "Skills" }).click();
  await page.getByLabel("Tenant").fill("flo");
  await page.getByLabel("Agent").fill("helper");
  await page.getByRole("button", { name: "Open" }).click();
  await page.getByText("No skills of flo/helper.").waitFor();
  await page.locator("input[type=file]").setInputFiles({ name: "skills.zip", mimeType: "application/zip", buffer: zip(SKILL) });
  await page.getByText("Uploaded: notes").waitFor();

  await page.getByRole("link", { name: /notes/ }).click();
  await page.getByRole("heading", { level: 1, name: "Skill notes" }).waitFor();
  await page.getByRole("button", { name: /read.py/ }).click();
  const editor = page.getByLabel("Content of read.py");
  await editor.fill(`${SKILL["notes/read.py"]}print('edited')\n`);
  await page.keyboard.press("Control+s");
  await page.locator("[role=status]").filter({ hasText: "Saved" }).first().waitFor();
  assert.match((await api("GET", "/v1/skills/flo/helper/notes/content?path=read.py")).content, /edited/);

  // The file changes on the server meanwhile.
  await api("PUT", "/v1/skills/flo/helper/notes/edit", {
    path: "read.py",
    content: `${SKILL["notes/read.py"]}print('theirs')\n`,
  });
  await editor.fill("mine");
  await page.getByRole("button", { name: "Save" }).click();
  await page.getByRole("alert").filter({ hasText: "Not saved" }).waitFor();
  assert.match(faults.splice(0).join(), /409/);
  assert.equal(await editor.inputValue(), "mine");
  await page.getByRole("button", { name: "Load the new version" }).click();
  await until("their text", async () => (await editor.inputValue()).includes("theirs"));

  await page.getByRole("tab", { name: "Files" }).focus();
  await page.keyboard.press("ArrowRight");
  await page.getByLabel("Bash command").fill("ls -l");
  await page.getByRole("button", { name: "Run", exact: true }).click();
  await page.getByText(/^exit 0 after/).waitFor();
  await page.getByLabel("Standard output").filter({ hasText: "read.py" }).waitFor();

  // The file is outside of the skill, and named by a file rather than by the command's own text.
  await api("PUT", "/v1/skills/flo/helper/notes/edit", {
    path: "where.py",
    content: `import subprocess, sys\nsys.exit(3 * subprocess.run([sys.executable, "read.py", ${JSON.stringify(SECRET)}]).returncode)\n`,
  });
  await page.getByLabel("Bash command").fill("python3 where.py");
  await page.getByRole("button", { name: "Run", exact: true }).click();
  await page.getByText(/^exit 3 after/).waitFor();
  const row = page.getByRole("row").filter({ hasText: SECRET });
  await row.waitFor();
  await row.locator("summary").click();
  await row.getByText("Rule origin").waitFor();

  await page.getByLabel("Ask me about denied accesses").check();
  await page.getByLabel("Bash command").fill("python3 where.py");
  await page.getByRole("button", { name: "Run", exact: true }).click();
  const dock = page.getByRole("complementary", { name: "Pending question" });
  await dock.locator(".reason", { hasText: `wants to read ${SECRET}` }).waitFor();
  assert.match(await page.locator("#urgent").textContent(), /Question from flo/);
  await page.locator("header .badge", { hasText: /^1 ask$/ }).waitFor();
  assert.match(await page.title(), /^\(1\) /);
  for (const name of ["Allow once", "Allow for this session", "Allow permanently", "Deny"]) {
    assert.equal(await dock.getByRole("button", { name }).count(), 1, name);
  }
  await page.waitForTimeout(700);
  await dock.getByRole("button", { name: "Allow once" }).click();
  await page.getByText(/^exit 0 after/).waitFor();
  await page.getByLabel("Standard output").filter({ hasText: "a secret of the host" }).waitFor();
  assert.equal(await dock.isVisible(), false);

  // Leaving the view to answer does not cancel the command.
  await page.getByRole("button", { name: "Run", exact: true }).click();
  await page.locator("header .badge", { hasText: /^1 ask$/ }).click();
  await page.getByRole("heading", { level: 1, name: "Asks" }).waitFor();
  await page.waitForTimeout(700);
  await page.locator("main").getByRole("button", { name: "Allow once" }).click();
  await page.getByText("No questions.").waitFor();
  const known = await until("its end", async () => {
    const { executions } = await api("GET", "/v1/executions?userId=flo");
    return executions.every((each) => each.endedMs) && executions;
  });
  assert.equal(known[0].result.exitCode, 0);
  await page.goto(`${URL_}#/executions/${known[0].id}`);
  await page.getByRole("heading", { name: "Allowed by an answer" }).waitFor();
  await page.getByRole("link", { name: "in the audit log" }).click();
  await page.getByRole("row").filter({ hasText: SECRET }).first().waitFor();
  await page.getByRole("button", { name: "Verify" }).click();
  await page.getByText("The log is intact").waitFor();
  await page.locator("button.row").first().click();
  await page.getByRole("dialog").getByLabel("The record as JSON").waitFor();
  await page.keyboard.press("Escape");
  assert.equal(await page.getByRole("dialog").count(), 0);

  await page.locator("nav").getByRole("link", { name: "Denials" }).click();
  await page.getByRole("row").filter({ hasText: SECRET }).first().waitFor();
  await page.goto(`${URL_}#/skills/flo/helper/notes`);
  await page.getByRole("button", { name: "Remove" }).click();
  await page.getByRole("button", { name: "Remove it" }).click();
  await page.getByText("No skills of flo/helper.").waitFor();
  assert.deepEqual(faults, []);
  await context.close();
});

test("a running command appears at once, and can be cancelled", async () => {
  const { page, faults, context } = await visit(browser);
  await signIn(page);
  const form = new FormData();
  form.append("file", new Blob([zip({ "slow/SKILL.md": SKILL["notes/SKILL.md"] })]), "x.zip");
  await api("POST", "/v1/skills/cara/helper/upload", form);
  const { id } = await api("POST", "/v1/skills/cara/helper/slow/execute?async=true", {
    command: "echo first; python3 -c 'import time; time.sleep(60)'",
  });
  await page.getByRole("link", { name: /echo first/ }).click();
  await page.getByLabel("Standard output").filter({ hasText: "first" }).waitFor();
  await page.getByRole("button", { name: "Cancel it" }).click();
  await page.getByRole("dialog").getByRole("button", { name: "Cancel it" }).click();
  await until("its end", async () => (await api("GET", `/v1/executions/${id}`)).endedMs);
  await page.getByText("Exit status").waitFor();
  assert.deepEqual(faults, []);
  await context.close();
});

test("a token is shown once, has its scopes only, and is invalid after its revocation", async () => {
  const { page, faults, context } = await visit(browser);
  await signIn(page);
  await page.goto(`${URL_}#/tenants`);
  await page.getByLabel("Label").fill("for a test");
  await page.getByLabel("Tenant", { exact: true }).fill("dora");
  await page.getByRole("button", { name: "Create a token" }).click();
  const word = await page.getByLabel("Token value").inputValue();
  await page.getByRole("dialog").getByRole("button", { name: "Copy" }).click();
  assert.equal(await page.evaluate(() => navigator.clipboard.readText()), word);
  await page.getByRole("button", { name: "Done" }).click();
  const hers = await visit(browser);
  await signIn(hers.page, word);
  // Views without the scope are not offered.
  assert.deepEqual(await hers.page.locator("nav a > :first-child").allTextContents(), [
    "Overview",
    "Executions",
    "Denials",
    "Skills",
    "API",
  ]);
  await page
    .getByRole("row")
    .filter({ hasText: "for a test" })
    .getByRole("button", { name: /Revoke/ })
    .click();
  await page.getByRole("button", { name: "Revoke it" }).click();
  await hers.page.getByText("This token is no longer valid").waitFor();
  assert.deepEqual(
    hers.faults.filter((fault) => !fault.includes("401")),
    [],
  );
  await hers.context.close();

  await page.goto(`${URL_}#/tenants/dora`);
  await page.getByLabel("Policy of dora").fill('version = 1\n\nmode = "whatever"\n');
  await page.getByRole("button", { name: "Save policy" }).click();
  await page
    .getByRole("alert")
    .filter({ hasText: /mode|whatever/ })
    .waitFor();
  assert.equal(await page.getByLabel("Policy of dora").getAttribute("aria-invalid"), "true");
  assert.match(faults.splice(0).join(), /400/);
  await page.getByLabel("Policy of dora").fill("version = 1\n");
  await page.getByRole("button", { name: "Save policy" }).click();
  await page.getByText("It applies to every command").waitFor();
  await page.getByLabel("Executions at once").fill("3");
  await page.getByRole("button", { name: "Set quotas" }).click();
  await page.getByText("The quotas apply from now on").waitFor();
  assert.equal((await api("GET", "/v1/tenants/dora")).quotas.executions, 3);

  await page.goto(`${URL_}#/api`);
  await page.locator("summary", { hasText: "/v1/tenants/{userId}/quotas" }).click();
  await page.getByLabel(/userId/).fill("dora");
  assert.match(await page.getByLabel("The same with curl").textContent(), /curl -X PUT [^]*\/v1\/tenants\/dora\/quotas/);
  await page.getByRole("button", { name: "Send" }).click();
  await page.getByLabel("Answer", { exact: true }).filter({ hasText: "storageBytes" }).waitFor();
  assert.deepEqual(faults, []);
  await context.close();
});
