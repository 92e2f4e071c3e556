// Tokens, and the quotas and policies of tenants.

import { fill, h, put } from "../dom.js";
import { bytes, line, many, number } from "../format.js";
import { ask, get, path } from "../remote.js";
import { chip, editor, empty, field, form, name, table, tabs, trouble } from "../widgets.js";
import { tokens } from "./tokens.js";

export function show(main, [user], signal) {
  const panels = [
    ["Tokens", h("div", { class: "stack" })],
    ["Tenants", h("div", { class: "stack" })],
  ];
  const { list } = tabs("Tokens and tenants", panels, user ? 1 : 0);
  put(
    main,
    h("div", { class: "title" }, h("h1", {}, "Tokens & tenants")),
    list,
    panels.map(([, panel]) => panel),
  );
  tokens(panels[0][1], signal);
  tenants(panels[1][1], user, signal);
}

function tenants(place, user, signal) {
  const found = h("div");
  const chosen = h("div", { class: "stack" });
  const list = table(
    "Tenants",
    [
      { title: "Tenant", cell: (each) => h("a", { class: "row", href: path`#/tenants/${each.userId}` }, name(each.userId)) },
      { title: "Skills", kind: "right", cell: (each) => number(each.skills) },
      { title: "Storage", kind: "right", cell: (each) => `${bytes(each.bytes)} of ${bytes(each.quotas.storageBytes)}` },
      { title: "Running", kind: "right", cell: (each) => `${number(each.running)} of ${number(each.quotas.executions)}` },
      {
        title: "Agents",
        kind: "grow",
        cell: (each) =>
          each.agents.length > 0
            ? h(
                "span",
                { class: "chips" },
                each.agents.map((agent) => chip(line(agent))),
              )
            : "–",
      },
    ],
    { key: (each) => each.userId },
  );
  const other = h("input", { type: "text", autocomplete: "off", spellcheck: "false" });
  const open = form(
    { class: "filters", "aria-label": "Another tenant" },
    () => {
      if (other.value.trim()) location.hash = path`#/tenants/${other.value.trim()}`;
    },
    field("Another tenant", other),
    h("button", { type: "submit" }, "Open"),
  );
  async function load() {
    const { tenants: all } = await get("/v1/tenants", { signal });
    fill(found, all.length === 0 ? empty("No tenant has skills yet.") : list.element);
    list.draw(all);
  }
  fill(place, found, open, chosen);
  load().catch((error) => {
    if (!signal.aborted) fill(found, trouble(error));
  });
  if (user)
    one(chosen, user, signal, load).catch((error) => {
      if (!signal.aborted) fill(chosen, trouble(error));
    });
}

async function one(place, user, signal, afterwards) {
  const [tenant, { policy }] = await Promise.all([
    get(path`/v1/tenants/${user}`, { signal }),
    get(path`/v1/tenants/${user}/policy`, { signal }),
  ]);
  fill(place, h("h2", {}, "Tenant ", name(user)), quotas(tenant, afterwards), policyOf(user, policy));
}

function quotas({ userId, quotas: now }, afterwards) {
  const input = (value, min) => h("input", { type: "number", min: String(min), step: "1", value: String(value), required: true });
  const inputs = {
    executions: input(now.executions, 0),
    sandboxes: input(now.sandboxes, 0),
    storageMiB: input(Math.round(now.storageBytes / 1048576), 0),
    requestsPerSecond: input(now.requestsPerSecond, 1),
  };
  const set = async () => {
    const given = Object.fromEntries(
      Object.entries(inputs).map(([key, each]) => [key, each.value === "" ? NaN : Number(each.value)]),
    );
    if (Object.values(given).some((value) => !Number.isInteger(value) || value < 0))
      throw new Error("Each quota must be an integer.");
    // An unchanged value keeps its exact bytes.
    const storageBytes =
      given.storageMiB === Math.round(now.storageBytes / 1048576) ? now.storageBytes : given.storageMiB * 1048576;
    await ask("PUT", path`/v1/tenants/${userId}/quotas`, {
      body: {
        executions: given.executions,
        sandboxes: given.sandboxes,
        storageBytes,
        requestsPerSecond: given.requestsPerSecond,
      },
    });
    afterwards().catch(() => {});
    return h("p", { class: "notice", role: "status" }, "Saved. The quotas apply from now on.");
  };
  return h(
    "section",
    { class: "card" },
    h("h3", {}, "Quotas"),
    form(
      { class: "stack" },
      set,
      h(
        "div",
        { class: "inline-fields" },
        field("Executions at once", inputs.executions),
        field("Sandboxes at once", inputs.sandboxes),
        field("Storage, MiB", inputs.storageMiB),
        field("Requests per second", inputs.requestsPerSecond),
      ),
      h("div", { class: "buttons" }, h("button", { type: "submit", class: "first" }, "Set quotas")),
    ),
  );
}

function policyOf(user, text) {
  const edit = editor(`Policy of ${line(user)}`, {
    on: {
      keydown(event) {
        if (event.key !== "s" || !(event.ctrlKey || event.metaKey)) return;
        event.preventDefault();
        element.requestSubmit();
      },
    },
  });
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
    return h(
      "p",
      { class: "notice", role: "status" },
      `Saved, ${many(edit.area.value.split("\n").length, "line")}. It applies to every command that starts from now on.`,
    );
  };
  const element = form(
    { class: "stack" },
    save,
    edit.element,
    h("div", { class: "buttons" }, h("button", { type: "submit", class: "first" }, "Save policy")),
  );
  return h(
    "section",
    { class: "card" },
    h("h3", {}, "Policy"),
    h("p", { class: "quiet" }, "TOML, in addition to the service’s policy. ringfence policy schema describes it."),
    element,
  );
}
