// The list of executions, and the details of one.

import { fill, h, put, say } from "../dom.js";
import { WORDS } from "../dock.js";
import { isOver } from "../figures.js";
import { amount, bytes, duration, line, many, number, stamp, visible, when } from "../format.js";
import { live, watch } from "../live.js";
import { output } from "../output.js";
import { ask, get, listen, path } from "../remote.js";
import { chip, copyButton, empty, name, select, sure, table, trouble } from "../widgets.js";
import { refusals } from "./denials.js";

const STATES = [
  ["", "Any state"],
  ["running", "Running or waiting"],
  ["blocked", "Blocked"],
  ["beyond", "Limit exceeded"],
  ["failed", "Failed or lost"],
  ["ok", "Ended with 0"],
];
const filters = { text: "", user: "", state: "" };

export function whose(each) {
  if (each.sandboxId) return name(`${each.userId}, sandbox`, "whose");
  return name(`${each.userId}/${each.agentId}/${each.skillId}`, "whose");
}

export function commandLink(each) {
  return h("a", { class: "row mono", href: path`#/executions/${each.id}` }, line(each.command));
}

export function stateChip(each) {
  const { result } = each;
  if (each.state === "running") return chip("running", "run");
  if (each.state === "waiting") return chip("waiting");
  if (each.state === "failed" || each.state === "lost")
    return chip(each.error?.code === "cancelled" ? "cancelled" : each.state, "bad");
  const blocked = result?.blocked ?? each.blocked;
  const code = result?.exitCode ?? each.exitCode;
  if (blocked) return chip("blocked", "bad");
  if (result?.timedOut) return chip("timed out", "warn");
  if (result?.breaches?.length) return chip("limit", "warn");
  return code === 0 ? chip("ended", "ok") : chip(`exit ${code}`, "warn");
}

export function show(main, [id], signal) {
  if (id) return detail(main, id, signal);
  const text = h("input", {
    type: "search",
    placeholder: "Command, skill or id",
    "aria-label": "Filter by text",
    value: filters.text,
  });
  const user = h("input", { type: "search", placeholder: "Any tenant", "aria-label": "Filter by tenant", value: filters.user });
  const state = select(STATES, filters.state, { "aria-label": "Filter by state" });
  const count = h("p", { class: "quiet count-line", role: "status" });
  const place = h("div");
  const bar = h(
    "div",
    {
      class: "filters",
      role: "search",
      "aria-label": "Filter executions",
      on: {
        input() {
          Object.assign(filters, { text: text.value, user: user.value, state: state.value });
          draw();
        },
      },
    },
    text,
    user,
    state,
  );
  put(main, h("div", { class: "title" }, h("h1", {}, "Executions"), count), bar, place);
  const list = table("Executions, newest first", [
    { title: "Started", kind: "time", cell: (each) => when(each.createdMs) },
    { title: "State", cell: stateChip },
    { title: "Owner", cell: whose },
    { title: "Command", kind: "grow", cell: commandLink },
    { title: "Exit", kind: "right", cell: (each) => each.result?.exitCode ?? "–" },
    { title: "Duration", kind: "right", cell: (each) => duration(each.result?.durationMs ?? null) },
    {
      title: "Denials",
      kind: "right",
      cell: (each) => (each.result?.denials?.length ? number(each.result.denials.length) : "–"),
    },
  ]);
  function draw() {
    const all = [...live.executions.values()].sort((one, other) => other.createdMs - one.createdMs);
    const words = filters.text.toLowerCase();
    const found = all.filter(
      (each) =>
        (!words || `${each.id} ${each.sandboxId ?? `${each.agentId}/${each.skillId}`} ${each.command}`.toLowerCase().includes(words)) &&
        (!filters.user || each.userId.toLowerCase().includes(filters.user.toLowerCase())) &&
        isIn(each, filters.state),
    );
    count.textContent =
      found.length === all.length ? many(all.length, "execution") : `${number(found.length)} of ${many(all.length, "execution")}`;
    if (found.length === 0) {
      fill(
        place,
        all.length === 0
          ? empty(
              "No command has been run yet.",
              h("p", { class: "quiet" }, "Run skills from the Skills view, or with POST /v1/skills/…/execute."),
            )
          : empty("No matching executions."),
      );
    } else {
      if (!place.contains(list.element)) fill(place, list.element);
      list.draw(found.slice(0, 300));
    }
  }
  watch(signal, ["executions"], draw);
}

function isIn(each, state) {
  switch (state) {
    case "running":
      return !isOver(each);
    case "blocked":
      return Boolean(each.result?.blocked);
    case "beyond":
      return Boolean(each.result?.timedOut || each.result?.breaches?.length);
    case "failed":
      return each.state === "failed" || each.state === "lost";
    case "ok":
      return each.result?.exitCode === 0;
    default:
      return true;
  }
}

function detail(main, id, signal) {
  const facts = h("dl", { class: "facts" });
  const head = h("div", { class: "title" });
  const command = h("pre", { class: "command", tabindex: "0", "aria-label": "Command" });
  const found = h("div", { class: "stack" });
  const streams = output();
  const cancel = h("button", { type: "button", class: "danger", hidden: true, on: { click: () => end() } }, "Cancel it");
  const title = h("h1", {}, "Execution");
  put(
    main,
    h("p", { class: "back" }, h("a", { href: "#/executions" }, "← Executions")),
    head,
    command,
    facts,
    found,
    streams.element,
  );
  let now = null;

  function draw() {
    fill(head, title, stateChip(now), h("span", { class: "space" }), cancel);
    cancel.hidden = isOver(now);
    fill(command, marked(now));
    const { result } = now;
    const rows = [
      [
        "Owner",
        now.sandboxId
          ? h("a", { href: path`#/sandboxes/${now.sandboxId}` }, whose(now))
          : h("a", { href: path`#/skills/${now.userId}/${now.agentId}/${now.skillId}` }, whose(now)),
      ],
      ["Id", [name(now.id, "mono"), " ", copyButton(() => now.id)]],
      ["Created", stamp(now.createdMs)],
      now.startedMs && now.startedMs - now.createdMs > 50 && ["Queued for", duration(now.startedMs - now.createdMs)],
      result && ["Duration", duration(result.durationMs)],
      result && ["Exit status", String(result.exitCode)],
      result?.usage && ["CPU", duration((result.usage.userUs + result.usage.systemUs) / 1000)],
      result?.usage && ["Peak memory", bytes(result.usage.maxRssKb * 1024)],
      result && ["Confined", result.confined ? "yes" : "no"],
      live.may("audit") && ["Records", h("a", { href: path`#/audit/${now.userId}/${now.id}` }, "in the audit log")],
    ].filter(Boolean);
    fill(
      facts,
      rows.map(([term, value]) => h("div", {}, h("dt", {}, term), h("dd", {}, value))),
    );
    fill(found, findings(now));
  }

  async function end() {
    if (!(await sure("Cancel this command?", "It is interrupted, and killed if it does not end.", "Cancel it"))) return;
    try {
      now = { ...now, ...(await ask("DELETE", path`/v1/executions/${id}`)) };
      say("The command was interrupted.");
      draw();
    } catch (error) {
      fill(found, trouble(error));
    }
  }

  async function load() {
    now = await get(path`/v1/executions/${id}`, { signal });
    draw();
    if (isOver(now)) return streams.result(now.result);
    streams.begins();
    await listen("GET", path`/v1/executions/${id}/events`, { signal }, (kind, data) => streams.heard(kind, data));
    now = await get(path`/v1/executions/${id}`, { signal });
    draw();
    streams.ends(now.result);
    say(`The command has ended${now.result ? ` with ${now.result.exitCode}` : ""}.`);
  }
  fill(head, title);
  load().catch((error) => {
    if (!signal.aborted) fill(found, trouble(error));
  });
}

/** The command, with the part marked that a rule on its text denied. */
function marked({ command, result }) {
  const { position, length } = result?.refusal ?? {};
  if (!length) return visible(command);
  // Positions count characters, not UTF-16 code units.
  const characters = [...command];
  const part = (from, to) => visible(characters.slice(from, to).join(""));
  return [part(0, position), h("mark", {}, part(position, position + length)), part(position + length)];
}

/** Errors, limits, grants, denials and warnings of an execution. */
function findings({ result, error }) {
  if (error) return trouble(error);
  if (!result) return [];
  const refusal =
    result.refusal &&
    h(
      "section",
      { class: "callout bad" },
      h("h2", {}, "Not started"),
      h("p", {}, line(result.blockedReason ?? result.refusal.reason ?? "A rule on its text denied it.")),
    );
  const breaches =
    result.breaches?.length > 0 &&
    h(
      "section",
      { class: "callout warn" },
      h("h2", {}, "Limits reached"),
      h(
        "ul",
        {},
        result.breaches.map((each) =>
          h(
            "li",
            {},
            h("b", {}, each.limit),
            ` of ${amount(each.limit, each.configured)} was reached: ${amount(each.limit, each.observed)}`,
          ),
        ),
      ),
    );
  const granted =
    result.granted?.length > 0 &&
    h(
      "section",
      { class: "callout ok" },
      h("h2", {}, "Allowed by an answer"),
      h(
        "ul",
        {},
        result.granted.map((each) =>
          h(
            "li",
            {},
            chip(each.denial.operation),
            " ",
            name(each.denial.target, "mono"),
            ` ${WORDS[each.answer]?.[0].toLowerCase() ?? each.answer}`,
          ),
        ),
      ),
    );
  const denials =
    result.denials?.length > 0 &&
    h("section", {}, h("h2", {}, many(result.denials.length + (result.denialsDropped ?? 0), "denial")), refusals(result.denials));
  const warnings =
    result.warnings?.length > 0 &&
    h(
      "section",
      { class: "callout warn" },
      h("h2", {}, "Warnings"),
      h(
        "ul",
        {},
        result.warnings.map((each) => h("li", {}, line(each))),
      ),
    );
  return [refusal, breaches, granted, denials, warnings];
}
