// Tokens: create, list and revoke.

import { fill, h, say } from "../dom.js";
import { stamp, when } from "../format.js";
import { live } from "../live.js";
import { ask, get, path } from "../remote.js";
import { chip, copyButton, dialog, empty, field, form, name, select, sure, table, tick, trouble } from "../widgets.js";

const SCOPES = {
  "skills:read": "list and read skills",
  "skills:write": "upload, edit and remove them",
  execute: "run commands in them",
  sandboxes: "create and use sandboxes",
  asks: "answer questions",
  audit: "read the audit log",
  admin: "create tokens, set policies and quotas",
};
const LIVES = [
  ["", "permanently"],
  ["3600", "an hour"],
  ["86400", "a day"],
  ["604800", "a week"],
  ["2592000", "30 days"],
];

/** All tokens, and the form for a new one. */
export function tokens(place, signal) {
  const found = h("div");
  const list = table("Tokens", [
    { title: "Token", kind: "mono id", cell: (each) => name(each.id) },
    { title: "For", kind: "grow", cell: (each) => name(each.label || "–") },
    { title: "Tenant", cell: (each) => (each.userId ? name(each.userId) : chip("all", "warn")) },
    {
      title: "Scopes",
      kind: "rule",
      cell: (each) =>
        h(
          "span",
          { class: "chips" },
          each.scopes.map((scope) => chip(scope, scope === "admin" ? "warn" : "plain")),
        ),
    },
    { title: "Created", kind: "time", cell: (each) => when(each.createdMs) },
    {
      title: "Until",
      kind: "time",
      cell: (each) =>
        each.expiresMs ? h("span", { class: each.expiresMs < Date.now() ? "bad-text" : "" }, stamp(each.expiresMs)) : "no expiry",
    },
    {
      title: "",
      cell: (each) =>
        each.id === "admin"
          ? ""
          : h(
              "button",
              { type: "button", class: "row small danger", on: { click: () => revoke(each) } },
              "Revoke",
              h("span", { class: "unseen" }, ` token ${each.id}`),
            ),
    },
  ]);
  async function load() {
    const { tokens: all } = await get("/v1/tokens", { signal });
    fill(found, all.length === 0 ? empty("Only the administrator’s token exists.") : list.element);
    list.draw(all.toSorted((one, other) => other.createdMs - one.createdMs));
  }
  async function revoke(each) {
    if (!(await sure(`Revoke token ${each.id}?`, "Requests with this token are rejected from now on.", "Revoke it")))
      return;
    try {
      await ask("DELETE", path`/v1/tokens/${each.id}`);
      say("Revoked");
      await load();
    } catch (error) {
      fill(found, trouble(error));
    }
  }
  fill(place, maker(load), h("section", {}, h("h2", {}, "Tokens"), found));
  load().catch((error) => {
    if (!signal.aborted) fill(found, trouble(error));
  });
}

function maker(afterwards) {
  const label = h("input", { type: "text", maxlength: "200", autocomplete: "off", placeholder: "Purpose" });
  const user = h("input", {
    type: "text",
    autocomplete: "off",
    spellcheck: "false",
    value: live.me.userId ?? "",
    readOnly: live.me.userId !== null,
    placeholder: "All tenants",
  });
  const life = select(LIVES, "");
  const scopes = Object.entries(SCOPES)
    .filter(([scope]) => live.may(scope))
    .map(([scope, text]) => ({
      scope,
      ...tick([h("b", {}, scope), ` ${text}`], { checked: ["skills:read", "execute"].includes(scope) }),
    }));
  const make = async () => {
    const chosen = scopes.filter(({ input }) => input.checked).map(({ scope }) => scope);
    if (chosen.length === 0) throw new Error("Choose at least one scope.");
    const body = { label: label.value, scopes: chosen };
    if (user.value.trim()) body.userId = user.value.trim();
    if (life.value) body.expiresIn = Number(life.value);
    const made = await ask("POST", "/v1/tokens", { body });
    label.value = "";
    const word = h("input", { type: "text", readOnly: true, value: made.token, class: "mono", "aria-label": "Token value" });
    await Promise.all([
      afterwards(),
      dialog(
        "New token",
        [
          h("p", {}, "Copy it now: it is shown only once."),
          h(
            "div",
            { class: "with-button" },
            word,
            copyButton(() => made.token),
          ),
        ],
        [["Done", true, "first"]],
      ),
    ]);
  };
  return h(
    "section",
    { class: "card" },
    h("h2", {}, "New token"),
    form(
      { class: "stack" },
      make,
      h("div", { class: "inline-fields" }, field("Label", label), field("Tenant", user), field("Valid", life)),
      h(
        "fieldset",
        {},
        h("legend", {}, "Scopes"),
        h(
          "div",
          { class: "ticks" },
          scopes.map(({ element }) => element),
        ),
      ),
      h("div", { class: "buttons" }, h("button", { type: "submit", class: "first" }, "Create a token")),
    ),
  );
}
