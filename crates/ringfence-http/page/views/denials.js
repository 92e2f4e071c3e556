// Denials, live.

import { fill, h, put } from "../dom.js";
import { clock, line, many, number } from "../format.js";
import { live, watch } from "../live.js";
import { path } from "../remote.js";
import { chip, empty, name, select, table } from "../widgets.js";

const EVIDENCE = {
  kernel: "the kernel denied it, and the notify handler reported it",
  proxy: "the network proxy denied it",
  guard: "found in the command text, before the start",
  guessed: "guessed from the command’s output, and confirmed by the policy",
  tool: "denied to an in-process tool",
};

/** The reason of a denial. */
export function because(denial) {
  if (denial.explicit) return ["Denied by a rule: ", h("code", {}, line(denial.rule))];
  return denial.rule === "nothing opens it" ? "No rule allows it." : ["No rule allows it: ", h("code", {}, line(denial.rule))];
}

function explained(each) {
  const evidence = EVIDENCE[each.evidence] ?? each.evidence;
  const who = each.program && ["by ", name(each.program, "mono"), each.pid ? ` (process ${each.pid})` : "", "; "];
  return h(
    "details",
    { class: "why" },
    h("summary", {}, h("span", { class: "unseen" }, "Why: "), name(each.rule)),
    h(
      "dl",
      {},
      h("dt", {}, "Why"),
      h("dd", {}, because(each)),
      h("dt", {}, "Rule origin"),
      h("dd", {}, name(each.origin, "mono")),
      h("dt", {}, "Evidence"),
      h("dd", {}, who, evidence ?? "–"),
      h("dt", {}, "Count"),
      h("dd", {}, many(each.count ?? 1, "time")),
    ),
  );
}

const COLUMNS = [
  { title: "Time", kind: "time", cell: (each) => clock(each.timeMs) },
  { title: "Operation", cell: (each) => chip(each.operation, "bad") },
  {
    title: "Target",
    kind: "grow mono",
    cell: (each) => [name(each.target), each.count > 1 && h("span", { class: "quiet" }, ` ×${number(each.count)}`)],
  },
  { title: "Program", kind: "mono program", cell: (each) => name(each.program || "–") },
  { title: "Rule", kind: "rule", cell: explained },
];
const key = (each) => [each.execution ?? each.sandbox, each.operation, each.target, each.program, each.rule].join("\n");

/** The denials of one execution. */
export function refusals(list) {
  const all = table("Denied accesses", COLUMNS, { key });
  all.draw(list);
  return all.element;
}

const filters = { text: "", user: "", operation: "" };

export function show(main, _, signal) {
  const text = h("input", {
    type: "search",
    placeholder: "Target, program or rule",
    "aria-label": "Filter by text",
    value: filters.text,
  });
  const user = h("input", { type: "search", placeholder: "Any tenant", "aria-label": "Filter by tenant", value: filters.user });
  const operation = select([["", "Any operation"]], filters.operation, { "aria-label": "Filter by operation" });
  const pause = h(
    "button",
    {
      type: "button",
      "aria-pressed": "false",
      on: {
        click() {
          held = held ? null : live.denials.slice();
          pause.setAttribute("aria-pressed", String(held !== null));
          pause.textContent = held ? "Resume" : "Pause";
          draw();
        },
      },
    },
    "Pause",
  );
  const count = h("p", { class: "quiet count-line" });
  const place = h("div");
  let held = null;
  put(
    main,
    h("div", { class: "title" }, h("h1", {}, "Denials"), count),
    h(
      "div",
      {
        class: "filters",
        role: "search",
        "aria-label": "Filter denials",
        on: {
          input: () => {
            Object.assign(filters, { text: text.value, user: user.value, operation: operation.value });
            draw();
          },
        },
      },
      text,
      user,
      operation,
      pause,
    ),
    place,
  );
  const columns = [
    COLUMNS[0],
    { title: "Tenant", cell: (each) => name(each.user) },
    ...COLUMNS.slice(1),
    {
      title: "Execution",
      cell: (each) =>
        each.execution
          ? h(
              "a",
              { class: "row", href: path`#/executions/${each.execution}` },
              "Open",
              h("span", { class: "unseen" }, ` the execution with the denied ${each.operation} ${line(each.target)}`),
            )
          : each.sandbox
            ? chip("sandbox")
            : "–",
    },
  ];
  const list = table("Denials, newest first", columns, { key });
  function draw() {
    const all = held ?? live.denials;
    const known = new Set(all.map((each) => each.operation));
    for (const each of [...known].sort()) {
      if (![...operation.options].some((option) => option.value === each))
        operation.append(h("option", { value: each, selected: each === filters.operation }, each));
    }
    const words = filters.text.toLowerCase();
    const found = all.filter(
      (each) =>
        (!words || `${each.target} ${each.program} ${each.rule} ${each.origin}`.toLowerCase().includes(words)) &&
        (!filters.user || each.user.toLowerCase().includes(filters.user.toLowerCase())) &&
        (!filters.operation || each.operation === filters.operation),
    );
    const fresh = held ? live.denials.length - held.length : 0;
    count.textContent = `${found.length === all.length ? many(all.length, "denial") : `${number(found.length)} of ${many(all.length, "denial")}`}${held ? `, paused; ${number(Math.max(0, fresh))} new` : ""}`;
    if (found.length === 0) {
      fill(
        place,
        all.length === 0
          ? empty(
              "No denials.",
              h("p", { class: "quiet" }, "Accesses that the sandbox denies appear here, with their rule."),
            )
          : empty("No matching denials."),
      );
    } else {
      if (!place.contains(list.element)) fill(place, list.element);
      list.draw(found.slice(0, 300));
    }
  }
  watch(signal, ["denials"], draw);
}
