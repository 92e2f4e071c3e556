// Pending questions, shown below every view.

import { fill, h, say } from "./dom.js";
import { clock, line, many } from "./format.js";
import { live } from "./live.js";
import { ask, path } from "./remote.js";
import { name, trouble } from "./widgets.js";

export const WORDS = {
  allow_once: ["Allow once", "Allows this access only; the next one asks again."],
  allow_session: ["Allow for this session", "Allows this and later accesses while the sandbox lives."],
  allow_permanent: ["Allow permanently", "Allows it in later sandboxes too: a rule is added to the tenant’s policy."],
  deny: ["Deny", "The access stays denied."],
};

/** For this time a new question ignores answers: the click or key was meant for something else at its place. */
const REST = 600;

/** A question with its answers. */
export function question(each, beside) {
  const below = h("div", { class: "below" });
  const say_ = async (answer) => {
    if (Date.now() - each.seen < REST) return;
    const buttons = [...element.querySelectorAll("button")];
    buttons.forEach((button) => {
      button.disabled = true;
    });
    try {
      await ask("POST", path`/v1/asks/${each.id}`, { body: { answer } });
      const hadFocus = element.contains(document.activeElement) || document.activeElement === document.body;
      live.answered(each.id);
      say(`Answered: ${WORDS[answer][0]}`);
      if (hadFocus) setTimeout(() => (document.querySelector(".question") ?? document.querySelector("main h1"))?.focus(), 200);
    } catch (error) {
      if (error.status === 404) {
        live.answered(each.id);
        say("No command waits for this answer any more.");
        return;
      }
      fill(below, trouble(error));
      buttons.forEach((button) => {
        button.disabled = false;
      });
    }
  };
  const offered = Object.keys(WORDS).filter((answer) => each.options.includes(answer));
  const buttons = offered.map((answer, at) =>
    h(
      "button",
      {
        type: "button",
        class: answer === "deny" ? "danger" : "",
        "data-answer": answer,
        title: WORDS[answer][1],
        on: { click: () => say_(answer) },
      },
      WORDS[answer][0],
      h("kbd", { "aria-hidden": "true" }, at + 1),
    ),
  );
  const execution = live.executions.get(each.about);
  const about = execution ? h("a", { href: path`#/executions/${each.about}` }, "the execution") : name(each.about, "mono");
  const element = h(
    "article",
    {
      class: "question",
      tabindex: "-1",
      "aria-label": `Question from ${line(each.userId)}`,
      "data-id": each.id,
      on: {
        keydown(event) {
          const answer =
            /^[1-9]$/.test(event.key) && !event.ctrlKey && !event.altKey && !event.metaKey
              ? offered[Number(event.key) - 1]
              : null;
          if (!answer) return;
          event.preventDefault();
          say_(answer);
        },
      },
    },
    h("div", { class: "with-button" }, h("p", { class: "reason" }, line(each.reason)), beside),
    h(
      "p",
      { class: "quiet" },
      "For ",
      name(each.userId),
      execution && [", ", name(`${execution.agentId}/${execution.skillId}`)],
      ", in ",
      about,
      `, since ${clock(each.sinceMs)}; denied without an answer within two minutes.`,
    ),
    h("div", { class: "answers", role: "group", "aria-label": "Answers" }, buttons),
    below,
  );
  return element;
}

/** The oldest question, below every view except Asks; a single line of it on small screens. */
export function dock(signal) {
  const element = h("aside", { class: "dock", "aria-label": "Pending question", hidden: true });
  let shown = null;
  const draw = () => {
    const first = live.asks[0];
    const isThere = Boolean(first) && !/^#\/asks/.test(location.hash);
    element.hidden = !isThere;
    document.documentElement.classList.toggle("docked", isThere);
    const key = isThere ? `${first.id} ${live.asks.length} ${live.executions.has(first.about)}` : null;
    if (key === shown) return;
    const had = element.contains(document.activeElement);
    shown = key;
    element.classList.remove("later");
    if (!isThere) return void fill(element);
    const others = live.asks.length - 1;
    const later = h("button", { type: "button", class: "small", on: { click: () => element.classList.add("later") } }, "Later");
    fill(
      element,
      question(first, later),
      others > 0 && h("p", { class: "more" }, h("a", { href: "#/asks" }, many(others, "more question"))),
      h(
        "a",
        { class: "slim", href: "#/asks" },
        h("b", {}, many(live.asks.length, "question")),
        " ",
        h("span", {}, line(first.reason)),
      ),
    );
    if (had) element.querySelector(".question").focus();
  };
  live.addEventListener("change", draw, { signal });
  addEventListener("hashchange", draw, { signal });
  draw();
  return element;
}
