// Small charts, drawn as SVG from plain numbers.

import { fill, h, s } from "./dom.js";

const WIDTH = 240;
const HEIGHT = 48;

/** Lines over time. `series` are `{values, kind}`; a value may be absent. `label` describes the chart as text. */
export function lines(series, { label, titles = [], top }) {
  const most = Math.max(top ?? 0, ...series.flatMap(({ values }) => values.filter((value) => value !== null)), 1e-9);
  const count = series[0].values.length;
  const x = (at) => (count < 2 ? 0 : (at / (count - 1)) * WIDTH);
  const y = (value) => HEIGHT - 2 - (value / most) * (HEIGHT - 6);
  const drawn = series.map(({ values, kind }) => {
    const parts = runs(values);
    const point = ([at, value]) => `${x(at).toFixed(1)} ${y(value).toFixed(1)}`;
    const trace = parts
      .filter((part) => part.length > 1)
      .map((part) => `M${part.map(point).join("L")}`)
      .join("");
    const dots = parts
      .filter((part) => part.length === 1)
      .map(([only]) => `M${point(only)}h0.01`)
      .join("");
    const area = parts
      .map(
        (part) =>
          `M${x(part[0][0]).toFixed(1)} ${HEIGHT}L${part.map(point).join("L")}L${x(part.at(-1)[0]).toFixed(1)} ${HEIGHT}Z`,
      )
      .join("");
    return [
      s("path", { d: area, class: `area ${kind}` }),
      s("path", { d: trace, class: `trace ${kind}` }),
      s("path", { d: dots, class: `dot ${kind}` }),
    ];
  });
  return frame(label, [drawn, tips(count, titles)]);
}

/** A column for each interval. */
export function columns(values, { label, titles = [], kind = "one" }) {
  const most = Math.max(...values, 1);
  const step = WIDTH / values.length;
  const drawn = values.map((value, at) => {
    const height = value === 0 ? 1 : Math.max(2, (value / most) * (HEIGHT - 4));
    return s("rect", {
      x: (at * step + step * 0.12).toFixed(2),
      y: (HEIGHT - height).toFixed(2),
      width: (step * 0.76).toFixed(2),
      height: height.toFixed(2),
      class: value === 0 ? "bar none" : `bar ${kind}`,
    });
  });
  return frame(label, [drawn, tips(values.length, titles)]);
}

/** Rows of `[name, count]`, longest first. */
export function rows(pairs, none) {
  if (pairs.length === 0) return h("p", { class: "quiet" }, none);
  const most = Math.max(...pairs.map(([, count]) => count));
  const sorted = pairs.toSorted((one, other) => other[1] - one[1]).slice(0, 5);
  return h(
    "ul",
    { class: "bars" },
    sorted.map(([text, count]) => {
      const bar = s(
        "svg",
        { viewBox: "0 0 100 6", preserveAspectRatio: "none", "aria-hidden": "true" },
        s("rect", { width: 100, height: 6, class: "bar none" }),
        s("rect", { width: Math.max(2, (count / most) * 100), height: 6, class: "bar warn" }),
      );
      return h("li", {}, h("span", {}, text), bar, h("b", {}, count));
    }),
  );
}

function frame(label, content) {
  return s(
    "svg",
    { class: "chart", viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: "none", role: "img", "aria-label": label },
    content,
  );
}

function tips(count, titles) {
  if (titles.length === 0) return [];
  const step = WIDTH / count;
  return titles.map((title, at) =>
    s("rect", { x: at * step, y: 0, width: step, height: HEIGHT, class: "tip" }, s("title", {}, title)),
  );
}

/** Runs of values without a gap, each as `[index, value]`. */
function runs(values) {
  const found = [];
  let now = null;
  values.forEach((value, at) => {
    if (value === null) {
      now = null;
    } else {
      if (!now) found.push((now = []));
      now.push([at, value]);
    }
  });
  return found;
}

/** A number with its chart below. */
export function tile(title) {
  const value = h("p", { class: "figure" }, "–");
  const note = h("p", { class: "quiet note" });
  const place = h("div", { class: "plot" });
  const element = h("section", { class: "tile" }, h("h2", {}, title), value, note, place);
  return {
    element,
    draw(text, beside, chart) {
      value.textContent = text;
      note.textContent = beside;
      fill(place, chart);
    },
  };
}
