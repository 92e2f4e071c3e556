// Runs a command in a skill.

import { fill, h, say } from "../dom.js";
import { duration, line, many } from "../format.js";
import { output } from "../output.js";
import { ask, listen, path } from "../remote.js";
import { field, form, tick, trouble } from "../widgets.js";
import { stateChip } from "./executions.js";
import { refusals } from "./denials.js";

const LONGEST = 300;

export function runner(id, signal) {
  const command = h("textarea", {
    rows: "3",
    class: "code alone",
    spellcheck: "false",
    autocapitalize: "off",
    placeholder: "python3 scripts/main.py",
    on: {
      keydown(event) {
        if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) element.requestSubmit();
      },
    },
  });
  const seconds = h("input", { type: "number", min: "1", max: String(LONGEST), value: "60", class: "short" });
  const asks = tick("Ask me about denied accesses");
  const start = h("button", { type: "submit", class: "first" }, "Run");
  const stop = h("button", { type: "button", class: "danger", hidden: true, on: { click: () => cancel() } }, "Cancel");
  const streams = output();
  const summary = h("div", { class: "stack" });
  let execution = null;

  async function run() {
    if (command.value.trim() === "") throw new Error("Type a command first.");
    const limit = Number(seconds.value);
    if (!(limit >= 1 && limit <= LONGEST)) throw new Error(`The time limit must be 1 to ${LONGEST} seconds.`);
    fill(summary);
    streams.begins();
    execution = null;
    let end = null;
    // With a key it is not cancelled on disconnect: a user who goes to answer its question
    // leaves this view.
    const headers = {
      "Idempotency-Key": [...crypto.getRandomValues(new Uint8Array(16))].map((byte) => byte.toString(16)).join("-"),
    };
    try {
      const body = { command: command.value, timeoutMs: Math.round(limit * 1000), ask: asks.input.checked };
      await listen(
        "POST",
        path`/v1/skills/${id.user}/${id.agent}/${id.skill}/execute`,
        { body, headers, signal },
        (kind, data) => {
          if (kind === "begun") {
            execution = data.id;
            stop.hidden = false;
          }
          if (kind === "result" || kind === "error") end = { kind, data };
          streams.heard(kind, data);
        },
      );
    } catch (error) {
      if (signal.aborted) return null;
      streams.clear();
      throw error;
    } finally {
      stop.hidden = true;
    }
    if (end?.kind === "error") {
      streams.clear();
      fill(summary, trouble(end.data));
    } else if (end) {
      if (streams.isEmpty()) streams.result(end.data);
      else streams.ends(end.data);
      draw(end.data);
    }
    return null;
  }

  async function cancel() {
    try {
      await ask("DELETE", path`/v1/executions/${execution}`);
      say("The command was interrupted.");
    } catch (error) {
      fill(summary, trouble(error));
    }
  }

  function draw(result) {
    const reason = result.blocked && h("p", {}, line(result.blockedReason));
    fill(
      summary,
      h(
        "div",
        { class: "title" },
        stateChip({ state: "ended", result }),
        h("span", {}, `exit ${result.exitCode} after ${duration(result.durationMs)}`),
        h("span", { class: "space" }),
        h("a", { href: path`#/executions/${execution}` }, "The execution"),
      ),
      reason && h("section", { class: "callout bad" }, h("h2", {}, "Blocked"), reason),
      result.denials.length > 0 && h("section", {}, h("h2", {}, many(result.denials.length, "denial")), refusals(result.denials)),
    );
    say(
      `The command has ended with ${result.exitCode}${result.denials.length > 0 ? `, ${many(result.denials.length, "denial")}` : ""}.`,
    );
  }

  const element = form(
    { class: "stack" },
    run,
    field("Bash command", command, "Ctrl+Enter runs it. It keeps running when you leave this view: see Executions."),
    h("div", { class: "run-fields" }, field("Time limit (seconds)", seconds), asks.element),
    h("div", { class: "buttons" }, start, stop),
  );
  return h("div", { class: "stack" }, element, summary, streams.element);
}
