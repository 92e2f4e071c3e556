// What runs now, and how it has been lately.

import { fill, h, put, say } from "../dom.js";
import { columns, lines, rows, tile } from "../charts.js";
import { figures, isOver, SPANS } from "../figures.js";
import { bytes, clock, duration, line, many, number, when } from "../format.js";
import { live, watch } from "../live.js";
import { ask, path } from "../remote.js";
import { chip, empty, name, select, sure, table, trouble } from "../widgets.js";
import { commandLink, whose } from "./executions.js";

let chosen = "30";

export function show(main, _, signal) {
  const span = select(Object.entries(SPANS).map(([value, { title }]) => [value, title]), chosen, { "aria-label": "Stretch of time", on: {
    change() {
      chosen = span.value;
      drawFigures();
    },
  } });
  const tiles = {
    running: tile("Running now"), begun: tile("Executions a minute"), took: tile("Duration"), denied: tile("Denials a minute"),
    memory: tile("Peak memory"), cpu: tile("CPU time"), breaches: tile("Limits reached"),
  };
  const running = h("div");
  const sandboxes = h("section");
  const denials = h("div");
  put(main, 
    h("div", { class: "title" }, h("h1", {}, "Overview"), h("span", { class: "space" }), h("label", { class: "inline" }, "Last ", span)),
    h("div", { class: "tiles" }, Object.values(tiles).map(({ element }) => element)),
    h("div", { class: "pair" },
      h("div", {}, h("section", {}, h("h2", {}, "Running"), running), sandboxes),
      h("section", {}, h("h2", {}, "Latest denials"), denials)));

  const list = table("Executions that run or wait", [
    { title: "Since", kind: "time", cell: (each) => when(each.startedMs ?? each.createdMs) },
    { title: "Whose", cell: whose },
    { title: "Command", kind: "grow", cell: commandLink },
    { title: "For", kind: "right", cell: ({ seconds }) => duration(seconds * 1000) },
  ]);
  const stands = table("Sandboxes that stand", [
    { title: "Sandbox", kind: "mono", cell: (each) => name(each.id) },
    { title: "Tenant", cell: (each) => name(each.userId) },
    { title: "Since", kind: "time", cell: (each) => when(each.createdMs) },
    { title: "Until", kind: "time", cell: (each) => (each.expiresMs ? when(each.expiresMs) : "–") },
    { title: "Commands", kind: "right", cell: (each) => number(each.commands) },
    { title: "State", cell: (each) => (each.busy ? chip("busy", "run") : chip("idle")) },
    { title: "", cell: (each) => h("button", { type: "button", class: "row small danger", on: { click: () => end(each) } }, "End", h("span", { class: "unseen" }, ` sandbox ${each.id}`)) },
  ]);
  const below = h("div", { class: "below" });
  async function end(each) {
    if (!await sure("End this sandbox?", "Everything in it ends, and its directory is gone.", "End it")) return;
    fill(below);
    try {
      await ask("DELETE", path`/v1/sandboxes/${each.id}`);
      say("The sandbox was ended");
      live.soon();
    } catch (error) {
      fill(below, trouble(error));
    }
  }

  function drawFigures() {
    const now = Date.now();
    const given = SPANS[chosen];
    const all = [...live.executions.values()];
    const found = figures(all, live.denials, given, now);
    const aMinute = 60_000 / given.step;
    const titles = (values, shown) => values.map((value, at) => `${clock(found.start + at * given.step)}: ${value === null ? "nothing" : shown(value)}`);
    const within = `in the last ${given.title}`;
    const going = all.filter((each) => each.state === "running").length;
    const waiting = all.filter((each) => each.state === "waiting").length;
    const rate = (values) => (values.reduce((sum, value) => sum + value, 0) / values.length) * aMinute;
    const short = (value) => (value >= 10 ? Math.round(value) : Number(value.toFixed(1)));
    tiles.running.draw(number(going), waiting > 0 ? `${number(waiting)} waiting` : `at most ${number(Math.max(...found.running))} at once`,
      lines([{ values: found.running, kind: "one" }], { label: `Running at the same time ${within}: at most ${Math.max(...found.running)}`, titles: titles(found.running, number), top: 1 }));
    const begun = found.begun.reduce((sum, value) => sum + value, 0);
    tiles.begun.draw(short(rate(found.begun)), many(begun, "execution"), columns(found.begun, { label: `${many(begun, "execution")} ${within}`, titles: titles(found.begun, number) }));
    tiles.took.draw(duration(found.whole.p50), `p50; p95 ${duration(found.whole.p95)}`,
      lines([{ values: found.p95, kind: "two" }, { values: found.p50, kind: "one" }], { label: `Duration ${within}: half within ${duration(found.whole.p50)}, 95 of 100 within ${duration(found.whole.p95)}`, titles: found.p50.map((value, at) => `${clock(found.start + at * given.step)}: p50 ${duration(value)}, p95 ${duration(found.p95[at])}`) }));
    const refused = found.refused.reduce((sum, value) => sum + value, 0);
    tiles.denied.draw(short(rate(found.refused)), many(refused, "denial"), columns(found.refused, { label: `${many(refused, "denial")} ${within}`, titles: titles(found.refused, number), kind: "bad" }));
    tiles.memory.draw(bytes(found.whole.memory), "most of one process", lines([{ values: found.memory, kind: "one" }], { label: `Most memory of one process ${within}: ${bytes(found.whole.memory)}`, titles: titles(found.memory, bytes) }));
    tiles.cpu.draw(duration(found.whole.cpu), "most of one execution", lines([{ values: found.cpu, kind: "one" }], { label: `Most CPU time of one execution ${within}: ${duration(found.whole.cpu)}`, titles: titles(found.cpu, duration) }));
    const reached = found.breaches.reduce((sum, [, count]) => sum + count, 0);
    tiles.breaches.draw(number(reached), `of ${many(found.whole.ended, "result")}`, rows(found.breaches, "No execution went beyond a limit."));
  }

  function draw() {
    const now = Date.now();
    const going = [...live.executions.values()].filter((each) => !isOver(each)).map(({ result, ...each }) => ({ ...each, seconds: Math.round((now - (each.startedMs ?? each.createdMs)) / 1000) }));
    if (going.length === 0) {
      fill(running, empty("Nothing runs.", h("p", { class: "quiet" }, "Commands that are begun appear here at once.")));
    } else {
      if (!running.contains(list.element)) fill(running, list.element);
      list.draw(going);
    }
    if (live.sandboxes === null) {
      fill(sandboxes);
    } else if (live.sandboxes.length === 0) {
      fill(sandboxes, h("h2", {}, "Sandboxes"), empty("No sandbox stands."));
    } else {
      if (!sandboxes.contains(stands.element)) fill(sandboxes, h("h2", {}, "Sandboxes"), below, stands.element);
      stands.draw(live.sandboxes);
    }
    const last = live.denials.slice(0, 8);
    fill(denials, last.length === 0 ? empty("Nothing was refused.") : h("ul", { class: "feed" }, last.map((each) => h("li", {},
      h("time", {}, clock(each.timeMs)), chip(each.operation, "bad"), name(each.target, "mono target"),
      h("span", { class: "quiet" }, each.user, " · ", line(each.rule)),
      each.execution && h("a", { class: "over", href: path`#/executions/${each.execution}`, "aria-label": `The execution that wanted ${each.operation} ${line(each.target)}` })))));
  }

  watch(signal, ["executions", "denials", "sandboxes"], () => {
    draw();
    drawFigures();
  });
  const timer = setInterval(() => { draw(); drawFigures(); }, 2000);
  signal.addEventListener("abort", () => clearInterval(timer));
}
