// Running commands, and recent statistics.

import { fill, h, put, say } from "../dom.js";
import { isOver, SPANS } from "../figures.js";
import { clock, duration, line, number, when } from "../format.js";
import { live, watch } from "../live.js";
import { ask, path } from "../remote.js";
import { chip, empty, name, select, sure, table, trouble } from "../widgets.js";
import { commandLink, whose } from "./executions.js";
import { tiles } from "./tiles.js";

let chosen = "30";

export function show(main, _, signal) {
  const spans = Object.entries(SPANS).map(([value, { title }]) => [value, title]);
  const span = select(spans, chosen, { "aria-label": "Time range", on: { change: () => draw() } });
  const parts = { figures: tiles(), running: running(), sandboxes: sandboxes(), denials: denials() };
  const draw = () => {
    chosen = span.value;
    parts.figures.draw(SPANS[chosen]);
    parts.running.draw();
    parts.sandboxes.draw();
    parts.denials.draw();
  };
  put(
    main,
    h(
      "div",
      { class: "title" },
      h("h1", {}, "Overview"),
      h("span", { class: "space" }),
      h("label", { class: "inline" }, "Last ", span),
    ),
    parts.figures.element,
    h("div", { class: "pair" }, h("div", {}, parts.running.element, parts.sandboxes.element), parts.denials.element),
  );
  watch(signal, ["executions", "denials", "sandboxes"], draw);
  const timer = setInterval(draw, 2000);
  signal.addEventListener("abort", () => clearInterval(timer));
}

function running() {
  const place = h("div");
  const list = table("Running and queued executions", [
    { title: "Since", kind: "time", cell: (each) => when(each.startedMs ?? each.createdMs) },
    { title: "Owner", cell: whose },
    { title: "Command", kind: "grow", cell: commandLink },
    { title: "For", kind: "right", cell: ({ seconds }) => duration(seconds * 1000) },
  ]);
  function draw() {
    const since = (each) => Math.round((Date.now() - (each.startedMs ?? each.createdMs)) / 1000);
    const going = [...live.executions.values()]
      .filter((each) => !isOver(each))
      .map((each) => ({ ...each, seconds: since(each) }));
    if (going.length === 0) {
      fill(place, empty("No command is running.", h("p", { class: "quiet" }, "New commands appear here at once.")));
      return;
    }
    if (!place.contains(list.element)) fill(place, list.element);
    list.draw(going);
  }
  return { element: h("section", {}, h("h2", {}, "Running"), place), draw };
}

/** Empty if the service offers no sandboxes or the token does not permit them. */
function sandboxes() {
  const element = h("section");
  const below = h("div", { class: "below" });
  const list = table("Live sandboxes", [
    { title: "Sandbox", kind: "mono", cell: (each) => h("a", { class: "row", href: path`#/sandboxes/${each.id}` }, name(each.id)) },
    { title: "Tenant", cell: (each) => name(each.userId) },
    { title: "Since", kind: "time", cell: (each) => when(each.createdMs) },
    { title: "Until", kind: "time", cell: (each) => when(each.expiresMs) },
    { title: "Commands", kind: "right", cell: (each) => number(each.commands) },
    { title: "State", cell: (each) => (each.busy ? chip("busy", "run") : chip("idle")) },
    { title: "", cell: (each) => ender(each, below) },
  ]);
  function draw() {
    if (live.sandboxes === null) {
      fill(element);
    } else if (live.sandboxes.length === 0) {
      fill(element, h("h2", {}, "Sandboxes"), empty("No sandboxes."));
    } else {
      if (!element.contains(list.element)) fill(element, h("h2", {}, "Sandboxes"), below, list.element);
      list.draw(live.sandboxes);
    }
  }
  return { element, draw };
}

function ender({ id }, below) {
  const end = async () => {
    if (!(await sure("End this sandbox?", "This ends everything in it and removes its directory.", "End it"))) return;
    fill(below);
    try {
      await ask("DELETE", path`/v1/sandboxes/${id}`);
      say("The sandbox has ended");
      live.soon();
    } catch (error) {
      fill(below, trouble(error));
    }
  };
  const words = ["End", h("span", { class: "unseen" }, ` sandbox ${id}`)];
  return h("button", { type: "button", class: "row small danger", on: { click: end } }, words);
}

function denials() {
  const place = h("div");
  let shown = null;
  function draw() {
    const last = live.denials.slice(0, 8);
    const keys = JSON.stringify(last.map((each) => each.key));
    if (keys === shown) return;
    shown = keys;
    fill(place, last.length === 0 ? empty("No denials.") : h("ul", { class: "feed" }, last.map(row)));
  }
  return { element: h("section", {}, h("h2", {}, "Latest denials"), place), draw };
}

function row(each) {
  const words = `The execution with the denied ${each.operation} ${line(each.target)}`;
  return h(
    "li",
    {},
    h("time", {}, clock(each.timeMs)),
    chip(each.operation, "bad"),
    name(each.target, "mono target"),
    h("span", { class: "quiet" }, each.user, " · ", line(each.rule)),
    each.execution && h("a", { class: "over", href: path`#/executions/${each.execution}`, "aria-label": words }),
  );
}
