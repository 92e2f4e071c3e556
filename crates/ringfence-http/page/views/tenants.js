// Tokens, and how much tenants may use and do.

import { fill, h, put, say } from "../dom.js";
import { bytes, line, many, number, stamp, when } from "../format.js";
import { live } from "../live.js";
import { ask, get, path } from "../remote.js";
import { chip, copyButton, dialog, editor, empty, field, form, name, select, sure, table, tabs, tick, trouble } from "../widgets.js";

const SCOPES = {
  "skills:read": "list and read skills", "skills:write": "upload, edit and remove them", execute: "run commands in them", sandboxes: "make sandboxes",
  asks: "answer questions", audit: "read the audit log", admin: "make tokens, set policies and quotas",
};
const LIVES = [["", "for good"], ["3600", "an hour"], ["86400", "a day"], ["604800", "a week"], ["2592000", "30 days"]];

export function show(main, [user], signal) {
  const panels = [["Tokens", h("div", { class: "stack" })], ["Tenants", h("div", { class: "stack" })]];
  const { list } = tabs("Tokens and tenants", panels, user ? 1 : 0);
  put(main, h("div", { class: "title" }, h("h1", {}, "Tokens & tenants")), list, panels.map(([, panel]) => panel));
  tokens(panels[0][1], signal);
  tenants(panels[1][1], user, signal);
}

function tokens(place, signal) {
  const found = h("div");
  const list = table("Tokens", [
    { title: "Token", kind: "mono id", cell: (each) => name(each.id) },
    { title: "For", kind: "grow", cell: (each) => name(each.label || "–") },
    { title: "Tenant", cell: (each) => (each.userId ? name(each.userId) : chip("all", "warn")) },
    { title: "Scopes", kind: "rule", cell: (each) => h("span", { class: "chips" }, each.scopes.map((scope) => chip(scope, scope === "admin" ? "warn" : "plain"))) },
    { title: "Made", kind: "time", cell: (each) => when(each.createdMs) },
    { title: "Until", kind: "time", cell: (each) => (each.expiresMs ? h("span", { class: each.expiresMs < Date.now() ? "bad-text" : "" }, stamp(each.expiresMs)) : "for good") },
    { title: "", cell: (each) => (each.id === "admin" ? "" : h("button", { type: "button", class: "row small danger", on: { click: () => revoke(each) } }, "Revoke", h("span", { class: "unseen" }, ` token ${each.id}`))) },
  ]);
  async function load() {
    const { tokens: all } = await get("/v1/tokens", { signal });
    fill(found, all.length === 0 ? empty("No token but the administrator’s.") : list.element);
    list.draw(all.toSorted((one, other) => other.createdMs - one.createdMs));
  }
  async function revoke(each) {
    if (!await sure(`Revoke token ${each.id}?`, "Whoever uses it is not let in any more, from this moment on.", "Revoke it")) return;
    try {
      await ask("DELETE", path`/v1/tokens/${each.id}`);
      say("Revoked");
      await load();
    } catch (error) {
      fill(found, trouble(error));
    }
  }
  fill(place, maker(load), h("section", {}, h("h2", {}, "Tokens"), found));
  load().catch((error) => { if (!signal.aborted) fill(found, trouble(error)); });
}

function maker(afterwards) {
  const label = h("input", { type: "text", maxlength: "200", autocomplete: "off", placeholder: "What it is for" });
  const user = h("input", { type: "text", autocomplete: "off", spellcheck: "false", value: live.me.userId ?? "", readOnly: live.me.userId !== null, placeholder: "All tenants" });
  const life = select(LIVES, "");
  const scopes = Object.entries(SCOPES).filter(([scope]) => live.may(scope)).map(([scope, text]) => ({ scope, ...tick([h("b", {}, scope), ` ${text}`], { checked: ["skills:read", "execute"].includes(scope) }) }));
  const make = async () => {
    const chosen = scopes.filter(({ input }) => input.checked).map(({ scope }) => scope);
    if (chosen.length === 0) throw new Error("Choose one scope or more.");
    const body = { label: label.value, scopes: chosen };
    if (user.value.trim()) body.userId = user.value.trim();
    if (life.value) body.expiresIn = Number(life.value);
    const made = await ask("POST", "/v1/tokens", { body });
    label.value = "";
    const word = h("input", { type: "text", readOnly: true, value: made.token, class: "mono", "aria-label": "The token’s word" });
    await Promise.all([afterwards(), dialog("A new token", [h("p", {}, "Copy it now: it is shown this once and kept nowhere."), h("div", { class: "with-button" }, word, copyButton(() => made.token))], [["I have it", true, "first"]])]);
  };
  return h("section", { class: "card" }, h("h2", {}, "New token"), form({ class: "stack" }, make,
    h("div", { class: "inline-fields" }, field("Label", label), field("Tenant", user), field("Valid", life)),
    h("fieldset", {}, h("legend", {}, "What it may do"), h("div", { class: "ticks" }, scopes.map(({ element }) => element))),
    h("div", { class: "buttons" }, h("button", { type: "submit", class: "first" }, "Make a token"))));
}

function tenants(place, user, signal) {
  const found = h("div");
  const chosen = h("div", { class: "stack" });
  const list = table("Tenants", [
    { title: "Tenant", cell: (each) => h("a", { class: "row", href: path`#/tenants/${each.userId}` }, name(each.userId)) },
    { title: "Skills", kind: "right", cell: (each) => number(each.skills) },
    { title: "Storage", kind: "right", cell: (each) => `${bytes(each.bytes)} of ${bytes(each.quotas.storageBytes)}` },
    { title: "Running", kind: "right", cell: (each) => `${number(each.running)} of ${number(each.quotas.executions)}` },
    { title: "Agents", kind: "grow", cell: (each) => (each.agents.length > 0 ? h("span", { class: "chips" }, each.agents.map((agent) => chip(line(agent)))) : "–") },
  ], { key: (each) => each.userId });
  const other = h("input", { type: "text", autocomplete: "off", spellcheck: "false" });
  const open = form({ class: "filters", "aria-label": "Another tenant" }, () => { if (other.value.trim()) location.hash = path`#/tenants/${other.value.trim()}`; },
    field("Another tenant", other), h("button", { type: "submit" }, "Open"));
  async function load() {
    const { tenants: all } = await get("/v1/tenants", { signal });
    fill(found, all.length === 0 ? empty("No tenant has brought a skill yet.") : list.element);
    list.draw(all);
  }
  fill(place, found, open, chosen);
  load().catch((error) => { if (!signal.aborted) fill(found, trouble(error)); });
  if (user) one(chosen, user, signal, load).catch((error) => { if (!signal.aborted) fill(chosen, trouble(error)); });
}

async function one(place, user, signal, afterwards) {
  const [tenant, { policy }] = await Promise.all([get(path`/v1/tenants/${user}`, { signal }), get(path`/v1/tenants/${user}/policy`, { signal })]);
  fill(place, h("h2", {}, "Tenant ", name(user)), quotas(tenant, afterwards), policyOf(user, policy));
}

function quotas({ userId, quotas: now }, afterwards) {
  const input = (value, min) => h("input", { type: "number", min: String(min), step: "1", value: String(value), required: true });
  const inputs = { executions: input(now.executions, 0), sandboxes: input(now.sandboxes, 0), storageMiB: input(Math.round(now.storageBytes / 1048576), 0), requestsPerSecond: input(now.requestsPerSecond, 1) };
  const set = async () => {
    const given = Object.fromEntries(Object.entries(inputs).map(([key, each]) => [key, each.value === "" ? NaN : Number(each.value)]));
    if (Object.values(given).some((value) => !Number.isInteger(value) || value < 0)) throw new Error("Each of them is a whole number.");
    // Bytes that nobody touched stay as they are.
    const storageBytes = given.storageMiB === Math.round(now.storageBytes / 1048576) ? now.storageBytes : given.storageMiB * 1048576;
    await ask("PUT", path`/v1/tenants/${userId}/quotas`, { body: { executions: given.executions, sandboxes: given.sandboxes, storageBytes, requestsPerSecond: given.requestsPerSecond } });
    afterwards().catch(() => {});
    return h("p", { class: "notice", role: "status" }, "Set. It holds from now on.");
  };
  return h("section", { class: "card" }, h("h3", {}, "Quotas"), form({ class: "stack" }, set,
    h("div", { class: "inline-fields" }, field("Executions at once", inputs.executions), field("Sandboxes at once", inputs.sandboxes), field("Storage, MiB", inputs.storageMiB), field("Requests a second", inputs.requestsPerSecond)),
    h("div", { class: "buttons" }, h("button", { type: "submit", class: "first" }, "Set quotas"))));
}

function policyOf(user, text) {
  const edit = editor(`Policy of ${line(user)}`, { on: { keydown(event) {
    if (event.key !== "s" || !(event.ctrlKey || event.metaKey)) return;
    event.preventDefault();
    element.requestSubmit();
  } } });
  edit.set(text || "version = 1\n");
  const save = async () => {
    edit.area.removeAttribute("aria-invalid");
    try {
      await ask("PUT", path`/v1/tenants/${user}/policy`, { body: { policy: edit.area.value } });
    } catch (error) {
      edit.area.setAttribute("aria-invalid", "true");
      const row = /(?:policy\.toml:|line )(\d+)/.exec(error.message);
      if (row) edit.go(Number(row[1]));
      throw error;
    }
    return h("p", { class: "notice", role: "status" }, `Saved, ${many(edit.area.value.split("\n").length, "line")}. It holds for every command that begins from now on.`);
  };
  const element = form({ class: "stack" }, save, edit.element, h("div", { class: "buttons" }, h("button", { type: "submit", class: "first" }, "Save policy")));
  return h("section", { class: "card" }, h("h3", {}, "Policy"), h("p", { class: "quiet" }, "TOML, on top of the service’s own. ringfence policy schema describes it."), element);
}
