// Pending questions, and their answers.

import { arrows, fill, h, put } from "../dom.js";
import { question, WORDS } from "../dock.js";
import { many } from "../format.js";
import { live, watch } from "../live.js";
import { empty } from "../widgets.js";

export function show(main, _, signal) {
  const count = h("p", { class: "quiet count-line", role: "status" });
  const place = h("div", { class: "stack" });
  const drawn = new Map();
  put(
    main,
    h("div", { class: "title" }, h("h1", {}, "Asks"), count),
    place,
    h(
      "section",
      { class: "legend" },
      h("h2", {}, "Meaning of the answers"),
      h(
        "dl",
        {},
        Object.values(WORDS).map(([title, text]) => [h("dt", {}, title), h("dd", {}, text)]),
      ),
    ),
  );
  arrows(place, ".question");
  watch(signal, ["asks"], () => {
    count.textContent = live.asks.length === 0 ? "" : `${many(live.asks.length, "question")}, oldest first`;
    if (live.asks.length === 0) {
      drawn.clear();
      fill(
        place,
        empty(
          "No questions.",
          h(
            "p",
            { class: "quiet" },
            "A command run with “Ask me” waits at a denied access; its question appears here and below every other view.",
          ),
        ),
      );
      return;
    }
    if (drawn.size === 0) fill(place);
    for (const [id, element] of drawn) {
      if (live.asks.some((each) => each.id === id)) continue;
      element.remove();
      drawn.delete(id);
    }
    for (const each of live.asks) {
      if (drawn.has(each.id)) continue;
      const element = question(each);
      element.tabIndex = 0;
      drawn.set(each.id, element);
      place.append(element);
    }
  });
}
