// A browser on the page of a running service. Two checks apply all the time: no console errors,
// and no requests to other origins.
//
//   RINGFENCE_PAGE_URL     the address of the service
//   RINGFENCE_PAGE_TOKEN   the administrator's token
//   RINGFENCE_PAGE_TOOLS   the directory of the `npm ci` packages
//   RINGFENCE_PAGE_SECRET  a file outside of every skill that the user could read
//   RINGFENCE_PAGE_FILES   serves the page from this directory, for development

import assert from "node:assert/strict";
import { readFile } from "node:fs/promises";
import { createRequire } from "node:module";
import path from "node:path";

export const URL_ = process.env.RINGFENCE_PAGE_URL;
export const TOKEN = process.env.RINGFENCE_PAGE_TOKEN;
export const SECRET = process.env.RINGFENCE_PAGE_SECRET;
const require = createRequire(path.join(process.env.RINGFENCE_PAGE_TOOLS, "package.json"));
export const AXE = require.resolve("axe-core");

/** One browser for all tests of a file. */
export async function browse() {
  const { chromium } = require("playwright-core");
  return chromium.launch({ executablePath: "/usr/bin/chromium", args: ["--no-sandbox", "--disable-dev-shm-usage"] });
}

/** A fresh page. `faults` collects console errors and foreign requests. */
export async function visit(browser, { width = 1280, height = 900, theme = "light", motion = "reduce" } = {}) {
  const context = await browser.newContext({
    viewport: { width, height },
    colorScheme: theme,
    reducedMotion: motion,
    permissions: ["clipboard-read", "clipboard-write"],
  });
  const page = await context.newPage();
  page.setDefaultTimeout(40_000);
  const faults = [];
  page.on("console", (message) => {
    if (["error", "warning"].includes(message.type())) faults.push(`console: ${message.text()} ${message.location().url}`);
  });
  page.on("pageerror", (error) => faults.push(`error: ${error.stack}`));
  page.on("request", (request) => {
    if (new URL(request.url()).origin !== new URL(URL_).origin) faults.push(`request: ${request.url()}`);
  });
  page.on("dialog", (dialog) => {
    faults.push(`dialog: ${dialog.message()}`);
    dialog.dismiss();
  });
  const from = process.env.RINGFENCE_PAGE_FILES;
  if (from) {
    await page.route(/\/(page\/.*)?$/, async (route) => {
      const name = new URL(route.request().url()).pathname.replace(/^\/(page\/)?/, "") || "index.html";
      const headers = {
        "content-type": { js: "text/javascript", css: "text/css", svg: "image/svg+xml" }[name.split(".").at(-1)] ?? "text/html",
      };
      const { headers: given } = await fetch(URL_);
      headers["content-security-policy"] = given.get("content-security-policy");
      await route.fulfill({ headers, body: await readFile(path.join(from, name)) });
    });
  }
  return { page, faults, context };
}

export async function signIn(page, token = TOKEN) {
  await page.goto(URL_);
  await page.getByLabel("Token").fill(token);
  await page.keyboard.press("Enter");
  await page.getByRole("heading", { level: 1, name: "Overview" }).waitFor();
}

/** Calls the API directly. */
export async function api(method, where, body, headers = {}) {
  const isForm = body instanceof FormData;
  const answer = await fetch(new URL(where, URL_), {
    method,
    body: body === undefined || isForm ? body : JSON.stringify(body),
    headers: {
      Authorization: `Bearer ${TOKEN}`,
      ...(body !== undefined && !isForm && { "Content-Type": "application/json" }),
      ...headers,
    },
  });
  const text = await answer.text();
  assert.ok(answer.ok, `${method} ${where}: ${answer.status} ${text}`);
  return text && JSON.parse(text);
}

/** Waits for a condition. */
export async function until(what, isSo, limit = 40_000) {
  const end = Date.now() + limit;
  for (;;) {
    const found = await isSo();
    if (found) return found;
    assert.ok(Date.now() < end, `timeout waiting for ${what}`);
    await new Promise((done) => {
      setTimeout(done, 50);
    });
  }
}

/** A ZIP of plain files, from their names and texts. */
export function zip(files) {
  const { crc32 } = require("node:zlib");
  const parts = [];
  const list = [];
  let at = 0;
  for (const [name, text] of Object.entries(files)) {
    const [title, content] = [Buffer.from(name), Buffer.from(text)];
    const common = Buffer.alloc(26);
    common.writeUInt16LE(20, 0);
    common.writeUInt16LE(0x800, 2);
    common.writeUInt32LE(0x5821_0000, 6);
    common.writeUInt32LE(crc32(content), 10);
    common.writeUInt32LE(content.length, 14);
    common.writeUInt32LE(content.length, 18);
    common.writeUInt16LE(title.length, 22);
    const head = Buffer.concat([Buffer.from("PK\x03\x04"), common, title, content]);
    const rest = Buffer.alloc(14);
    rest.writeUInt32LE(0o100644 * 0x10000, 6);
    rest.writeUInt32LE(at, 10);
    list.push(Buffer.concat([Buffer.from("PK\x01\x02"), Buffer.from([20, 3]), common, rest, title]));
    parts.push(head);
    at += head.length;
  }
  const directory = Buffer.concat(list);
  const end = Buffer.alloc(18);
  end.writeUInt16LE(list.length, 4);
  end.writeUInt16LE(list.length, 6);
  end.writeUInt32LE(directory.length, 8);
  end.writeUInt32LE(at, 12);
  return Buffer.concat([...parts, directory, Buffer.from("PK\x05\x06"), end]);
}

export async function upload(user, agent, files) {
  const form = new FormData();
  form.append("file", new Blob([zip(files)]), "skills.zip");
  return api("POST", `/v1/skills/${user}/${agent}/upload`, form);
}
