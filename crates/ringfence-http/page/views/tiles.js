// Recent statistics: a number and a chart for each.

import { columns, lines, rows, tile } from "../charts.js";
import { h } from "../dom.js";
import { figures } from "../figures.js";
import { bytes, clock, duration, many, number } from "../format.js";
import { live } from "../live.js";

const sum = (values) => values.reduce((whole, value) => whole + value, 0);
const short = (value) => (value >= 10 ? Math.round(value) : Number(value.toFixed(1)));

/** All tiles; `draw` takes a time range. */
export function tiles() {
  const all = {
    running: tile("Running now"),
    begun: tile("Executions per minute"),
    took: tile("Duration"),
    denied: tile("Denials per minute"),
    memory: tile("Peak memory"),
    cpu: tile("CPU time"),
    breaches: tile("Limits reached"),
  };
  const element = h(
    "div",
    { class: "tiles" },
    Object.values(all).map((each) => each.element),
  );
  function draw(span) {
    const executions = [...live.executions.values()];
    const found = figures(executions, live.denials, span, Date.now());
    const scene = { found, executions, within: `in the last ${span.title}`, aMinute: 60_000 / span.step };
    scene.titles = (values, shown) =>
      values.map((value, at) => `${clock(found.start + at * span.step)}: ${value === null ? "nothing" : shown(value, at)}`);
    drawRunning(all.running, scene);
    drawCount(all.begun, scene, found.begun, ["execution", "one"]);
    drawTook(all.took, scene);
    drawCount(all.denied, scene, found.refused, ["denial", "bad"]);
    drawMost(all.memory, scene, ["memory", "Most memory of one process", "most of one process", bytes]);
    drawMost(all.cpu, scene, ["cpu", "Most CPU time of one execution", "most of one execution", duration]);
    all.breaches.draw(
      number(sum(found.breaches.map(([, count]) => count))),
      `of ${many(found.whole.ended, "result")}`,
      rows(found.breaches, "No execution exceeded a limit."),
    );
  }
  return { element, draw };
}

function drawRunning(place, { found, executions, within, titles }) {
  const are = (state) => executions.filter((each) => each.state === state).length;
  const most = Math.max(...found.running);
  const chart = { label: `Running at the same time ${within}: at most ${most}`, titles: titles(found.running, number), top: 1 };
  const beside = are("waiting") > 0 ? `${number(are("waiting"))} waiting` : `at most ${number(most)} at once`;
  place.draw(number(are("running")), beside, lines([{ values: found.running, kind: "one" }], chart));
}

function drawCount(place, { within, aMinute, titles }, values, [noun, kind]) {
  const count = sum(values);
  const chart = { label: `${many(count, noun)} ${within}`, titles: titles(values, number), kind };
  place.draw(short((count / values.length) * aMinute), many(count, noun), columns(values, chart));
}

function drawTook(place, { found, within, titles }) {
  const { p50, p95 } = found.whole;
  const label = `Duration ${within}: half within ${duration(p50)}, 95 of 100 within ${duration(p95)}`;
  const shown = titles(found.p50, (value, at) => `p50 ${duration(value)}, p95 ${duration(found.p95[at])}`);
  const both = [
    { values: found.p95, kind: "two" },
    { values: found.p50, kind: "one" },
  ];
  place.draw(duration(p50), `p50; p95 ${duration(p95)}`, lines(both, { label, titles: shown }));
}

function drawMost(place, { found, within, titles }, [key, words, beside, shown]) {
  const chart = { label: `${words} ${within}: ${shown(found.whole[key])}`, titles: titles(found[key], shown) };
  place.draw(shown(found.whole[key]), beside, lines([{ values: found[key], kind: "one" }], chart));
}
