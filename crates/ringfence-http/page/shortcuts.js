// Keyboard shortcuts.

import { h } from "./dom.js";
import { live } from "./live.js";
import { dialog, tick } from "./widgets.js";

const KEY = "ringfence-keys";
let isOn = true;
try {
  isOn = localStorage.getItem(KEY) !== "off";
} catch {
  // Without storage they are on.
}

function isTyping(target) {
  return target.closest?.("input:not([type=checkbox]):not([type=radio]), textarea, select, [contenteditable]");
}

/** Handles keys for the views that `seen` returns. */
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
    [["/"], "Focus the filter of the view"],
    [["a"], "Focus the oldest question"],
    [["1", "…", "4"], "In a question: choose an answer"],
    [["↑", "↓"], "Move between rows; ← → between tabs"],
    [["Ctrl", "S"], "In an editor: save"],
    [["Esc"], "Close a dialog"],
    [["?"], "This list"],
  ];
  const choice = tick("Single-key shortcuts", {
    checked: isOn,
    on: {
      change(event) {
        isOn = event.target.checked;
        try {
          localStorage.setItem(KEY, isOn ? "on" : "off");
        } catch {
          // Without storage the choice lasts for this page only.
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
