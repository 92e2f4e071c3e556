// The audit log, and its verification.

import { fill, h, put, say } from "../dom.js";
import { line, many, stamp, when } from "../format.js";
import { live } from "../live.js";
import { get, query } from "../remote.js";
import { chip, copyButton, dialog, empty, field, form, name, table, tick, trouble } from "../widgets.js";

const OPERATIONS = [
  "execute",
  "exit",
  "read",
  "write",
  "connect",
  "upload",
  "edit",
  "remove",
  "manage",
  "request",
  "ask",
  "answer",
];
const TONES = { blocked: "bad", failed: "warn", allowed: "ok" };
const filters = { userId: "", operation: "", session: "", text: "", since: "", blocked: false, limit: 200 };

export function show(main, [user, session], signal) {
  if (user !== undefined)
    Object.assign(filters, { userId: user, session: session ?? "", operation: "", text: "", since: "", blocked: false });
  const own = live.me.userId;
  const inputs = {
    userId: h("input", {
      type: "text",
      value: own ?? filters.userId,
      placeholder: own ? "" : "The service’s own log",
      readOnly: own !== null,
      autocomplete: "off",
      list: "audit-tenants",
    }),
    operation: h("input", {
      type: "text",
      value: filters.operation,
      placeholder: "Any",
      list: "audit-operations",
      autocomplete: "off",
    }),
    session: h("input", { type: "text", value: filters.session, placeholder: "Any", autocomplete: "off" }),
    text: h("input", { type: "search", value: filters.text, placeholder: "Anywhere" }),
    since: h("input", { type: "datetime-local", value: filters.since, step: "1" }),
  };
  const blocked = tick("Blocked only", { checked: filters.blocked });
  const count = h("p", { class: "quiet count-line", role: "status" });
  const verified = h("div");
  const place = h("div");
  const tenants = h("datalist", { id: "audit-tenants" });
  const bar = form(
    { class: "filters", role: "search", "aria-label": "Filter records" },
    () => load(),
    field("Tenant", inputs.userId),
    field("Operation", inputs.operation),
    field("Execution", inputs.session),
    field("Text", inputs.text),
    field("Since", inputs.since),
    blocked.element,
    h("button", { type: "submit", class: "first" }, "Show"),
    tenants,
    h(
      "datalist",
      { id: "audit-operations" },
      OPERATIONS.map((value) => h("option", { value })),
    ),
  );
  bar.addEventListener("change", () => bar.requestSubmit());
  const verify = h("button", { type: "button", on: { click: () => check() } }, "Verify");
  put(
    main,
    h("div", { class: "title" }, h("h1", {}, "Audit"), count, h("span", { class: "space" }), verify),
    bar,
    verified,
    place,
  );

  const list = table(
    "Records, newest first",
    [
      { title: "Time", kind: "time", cell: (each) => when(Date.parse(each.timestamp)) },
      {
        title: "Operation",
        cell: (each) =>
          h(
            "button",
            { type: "button", class: "row link", on: { click: () => detail(each) } },
            each.operation,
            h("span", { class: "unseen" }, ` ${line(each.target)}: show the record`),
          ),
      },
      { title: "Result", cell: (each) => chip(each.result, TONES[each.result]) },
      { title: "Target", kind: "grow mono", cell: (each) => name(each.target) },
      { title: "Rule", kind: "rule", cell: (each) => name(each.policy) },
      { title: "Reason", kind: "rule", cell: (each) => name(each.reason ?? "–") },
    ],
    { key: (each) => each.seq ?? each.hash },
  );

  async function load() {
    for (const [key, input] of Object.entries(inputs)) filters[key] = input.value.trim();
    filters.blocked = blocked.input.checked;
    const since = filters.since ? new Date(filters.since).toISOString() : "";
    const { records, more } = await get(`/v1/audit${query({ ...filters, since })}`, { signal });
    count.textContent = more ? `the newest ${many(records.length, "record")}` : many(records.length, "record");
    fill(
      place,
      records.length === 0
        ? empty(
            "No matching records.",
            h("p", { class: "quiet" }, filters.userId ? "" : "A tenant’s records are in the tenant’s own log: enter a tenant above."),
          )
        : list.element,
    );
    list.draw(records.toReversed());
  }

  async function check() {
    fill(verified, h("p", { class: "quiet" }, "Verifying all records …"));
    verify.disabled = true;
    try {
      const found = await get(`/v1/audit/verify${query({ userId: inputs.userId.value.trim() })}`, { signal });
      const whole = found.intact
        ? `The log is intact: ${many(found.records, "record")} in an unbroken hash chain.`
        : `The log is not intact: ${many(found.findings.length, "finding")}.`;
      fill(
        verified,
        h(
          "section",
          { class: `callout ${found.intact ? "ok" : "bad"}` },
          h("p", {}, whole),
          found.findings.length > 0 &&
            h(
              "ul",
              {},
              found.findings.map((each) => h("li", { class: "mono" }, line(each))),
            ),
        ),
      );
      say(whole);
    } catch (error) {
      fill(verified, trouble(error));
    } finally {
      verify.disabled = false;
    }
  }

  load().catch((error) => {
    if (!signal.aborted) fill(place, trouble(error));
  });
  if (live.may("skills:read")) {
    get("/v1/tenants", { signal }).then(
      ({ tenants: all }) =>
        fill(
          tenants,
          all.map((each) => h("option", { value: each.userId })),
        ),
      () => {},
    );
  }
}

function detail(record) {
  const text = JSON.stringify(record, null, 2);
  const fields = [
    ["Time", stamp(Date.parse(record.timestamp))],
    ["Agent", record.agent],
    ["Session", record.session],
    ["Target", record.target],
    ["Result", record.result],
    ["Rule", record.policy],
    ["Reason", record.reason],
  ];
  return dialog(`Record ${record.seq ?? ""}: ${record.operation}`, [
    h(
      "dl",
      { class: "facts" },
      fields.filter(([, value]) => value).map(([term, value]) => h("div", {}, h("dt", {}, term), h("dd", {}, name(value)))),
    ),
    h("pre", { class: "json", tabindex: "0", "aria-label": "The record as JSON" }, text),
    copyButton(() => text, "Copy JSON"),
  ]);
}
