// Sandboxes from the page: create, run commands, terminal, files, and end.

import assert from "node:assert/strict";
import { after, before, test } from "node:test";

import { api, browse, signIn, until, URL_, visit } from "./stage.mjs";

let browser;
before(async () => {
  browser = await browse();
});
after(() => browser.close());

async function made(page) {
  await page.locator("nav").getByRole("link", { name: "Sandboxes" }).click();
  await page.getByLabel("Tenant").fill("sam");
  await page.getByRole("button", { name: "Create a sandbox" }).click();
  await page.getByRole("heading", { level: 1, name: "Sandbox", exact: true }).waitFor();
  return page.url().split("/").at(-1);
}

test("a sandbox is created, runs commands in one shell, and is ended", async () => {
  const { page, faults, context } = await visit(browser);
  await signIn(page);
  const id = await made(page);
  const run = async (line, seen) => {
    await page.getByLabel("Bash command").fill(line);
    await page.getByRole("button", { name: "Run", exact: true }).click();
    await page.getByLabel("Standard output").filter({ hasText: seen }).waitFor();
    await page.getByText(/^exit 0 after/).waitFor();
  };
  await run("X=kept; mkdir sub; cd sub; echo begun", "begun");
  await run("echo $X; basename $PWD", "kept\nsub");
  // It is among the executions.
  await page.locator("nav").getByRole("link", { name: "Executions" }).click();
  await page.getByRole("link", { name: "echo $X; basename $PWD" }).click();
  await page.getByLabel("Standard output").filter({ hasText: "kept" }).waitFor();
  await page.goto(`${URL_}#/sandboxes/${id}`);
  await page.getByRole("button", { name: "End it" }).click();
  await page.getByRole("dialog").getByRole("button", { name: "End it" }).click();
  await page.getByText("No sandboxes.").waitFor();
  assert.deepEqual(faults, []);
  await context.close();
});

test("a terminal shows the output of a shell and sends keys", async () => {
  const { page, faults, context } = await visit(browser);
  await signIn(page);
  const id = await made(page);
  await page.getByRole("tab", { name: "Terminal" }).click();
  await page.getByRole("button", { name: "Open a terminal" }).click();
  const terminal = page.getByRole("textbox", { name: "Terminal" });
  await page.getByText("Connected").waitFor();
  await terminal.focus();
  await page.keyboard.type("echo $((6*7))-wrong");
  for (let each = 0; each < 6; each += 1) await page.keyboard.press("Backspace");
  await page.keyboard.press("Enter");
  await terminal.filter({ hasText: /\n42\n/ }).waitFor();
  // Sequences move the cursor and erase; they are not shown, and nothing of them becomes markup.
  await page.keyboard.type("printf 'abc\\033[2Dx\\033[K\\n<b>bold</b>\\n'");
  await page.keyboard.press("Enter");
  await terminal.filter({ hasText: /\nax\n<b>bold<\/b>\n/ }).waitFor();
  assert.equal(await terminal.locator("b").count(), 0);
  await page.keyboard.type("exit 3");
  await page.keyboard.press("Enter");
  await page.getByText("The shell has ended with 3.").waitFor();
  await api("DELETE", `/v1/sandboxes/${id}`);
  assert.deepEqual(faults, []);
  await context.close();
});

test("files of a sandbox are uploaded, read, edited and removed", async () => {
  const { page, faults, context } = await visit(browser);
  await signIn(page);
  const id = await made(page);
  await page.getByRole("tab", { name: "Files" }).click();
  await page.getByText("Empty directory.").waitFor();
  await page.getByRole("button", { name: "New directory" }).click();
  await page.getByRole("dialog").getByLabel("Name").fill("docs");
  await page.getByRole("dialog").getByRole("button", { name: "Create" }).click();
  await page.getByRole("button", { name: "docs/" }).click();
  await page.getByText("Empty directory.").waitFor();
  await page.getByLabel("Upload files").setInputFiles({ name: "note.txt", mimeType: "text/plain", buffer: Buffer.from("one\n") });
  await page.getByRole("button", { name: /note.txt/ }).click();
  const editor = page.getByLabel("Content of docs/note.txt");
  await until("its text", async () => (await editor.inputValue()) === "one\n");
  await editor.fill("two\n");
  await page.getByRole("button", { name: "Save" }).click();
  await until("what was saved", async () => (await api("GET", `/v1/sandboxes/${id}/files?path=docs/note.txt`)).text === "two\n");
  await page.getByRole("button", { name: "Remove" }).click();
  await page.getByRole("dialog").getByRole("button", { name: "Remove it" }).click();
  await page.getByText("Empty directory.").waitFor();
  await api("DELETE", `/v1/sandboxes/${id}`);
  assert.deepEqual(faults, []);
  await context.close();
});

test("a dialog does not outlive the view it belongs to", async () => {
  const { page, faults, context } = await visit(browser);
  await signIn(page);
  const { id } = await api("POST", "/v1/sandboxes", { userId: "sam" });
  await page.goto(`${URL_}#/sandboxes/${id}`);
  await page.getByRole("button", { name: "End it" }).click();
  await page.getByRole("dialog").waitFor();
  await page.evaluate(() => {
    location.hash = "#/audit";
  });
  await page.getByRole("heading", { level: 1, name: "Audit" }).waitFor();
  assert.equal(await page.getByRole("dialog").count(), 0);
  assert.equal((await api("GET", `/v1/sandboxes/${id}`)).id, id);
  await api("DELETE", `/v1/sandboxes/${id}`);
  assert.deepEqual(faults, []);
  await context.close();
});
