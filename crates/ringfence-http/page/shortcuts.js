// Keys that lead somewhere.

import { h } from "./dom.js";
import { live } from "./live.js";
import { dialog, tick } from "./widgets.js";

const KEY = "ringfence-keys";
let isOn = true;
try {
  isOn = localStorage.getItem(KEY) !== "off";
} catch {
  // They are on.
}

function isTyping(target) {
  return target.closest?.("input:not([type=checkbox]):not([type=radio]), textarea, select, [contenteditable]");
}

/** Hears keys for the views that `seen` answers. */
export function keys(seen) {
  let went = 0;
  addEventListener("keydown", (event) => {
    if (
      !isOn ||
      event.ctrlKey ||
      event.metaKey ||
      event.altKey ||
      isTyping(event.target) ||
      document.querySelector("dialog[open]")
    )
      return;
    const views = seen();
    if (views.length === 0) return;
    const found = Date.now() - went < 1500 && views.find(({ key }) => key === event.key);
    went = 0;
    if (found) {
      event.preventDefault();
      location.hash = `#/${found.at}`;
    } else if (event.key === "g") {
      went = Date.now();
    } else if (event.key === "?") {
      showKeys(views);
    } else if (event.key === "/") {
      const filter = document.querySelector("main [type=search]");
      if (!filter) return;
      event.preventDefault();
      filter.focus();
    } else if (event.key === "a" && live.asks.length > 0) {
      const first = document.querySelector(".question");
      if (first?.offsetParent) first.focus();
      else location.hash = "#/asks";
    }
  });
}

export function showKeys(views) {
  const rows = [
    ...views.map(({ key, title }) => [["g", key], title]),
    [["/"], "The filter of the view"],
    [["a"], "The question that waits longest"],
    [["1", "…", "4"], "Within a question: its answers"],
    [["↑", "↓"], "From row to row; ← → from tab to tab"],
    [["Ctrl", "S"], "In an editor: save"],
    [["Esc"], "Close a dialog"],
    [["?"], "This list"],
  ];
  const choice = tick("Shortcuts of a single key", {
    checked: isOn,
    on: {
      change(event) {
        isOn = event.target.checked;
        try {
          localStorage.setItem(KEY, isOn ? "on" : "off");
        } catch {
          // It holds for this page then.
        }
      },
    },
  });
  const list = h(
    "dl",
    { class: "keys" },
    rows.map(([names, text]) => [
      h(
        "dt",
        {},
        names.map((name) => [h("kbd", {}, name), " "]),
      ),
      h("dd", {}, text),
    ]),
  );
  return dialog("Keyboard shortcuts", [list, choice.element]);
}
