// Widgets shared by several views.

import { add, arrows, fill, h, say, unique } from "./dom.js";
import { line } from "./format.js";

/** An untrusted name, isolated from the text around it. */
export function name(text, kind = "name") {
  return h("bdi", { class: kind }, line(text));
}

/** An error message with its hint. */
export function trouble(error) {
  const hint = error.hint && h("p", { class: "hint" }, line(error.hint));
  return h("div", { class: "trouble", role: "alert" }, h("p", {}, line(error.message)), hint);
}

export function empty(text, ...more) {
  return h("div", { class: "empty" }, h("p", {}, text), more);
}

export function chip(text, tone = "plain") {
  return h("span", { class: `chip ${tone}` }, text);
}

/** A field with its label, and `hint` below it. */
export function field(label, input, hint) {
  input.id ||= unique("field");
  const below = hint && h("p", { class: "hint", id: `${input.id}-hint` }, hint);
  if (below) input.setAttribute("aria-describedby", below.id);
  return h("div", { class: "field" }, h("label", { for: input.id }, label), input, below);
}

export function tick(label, attributes = {}) {
  const input = h("input", { type: "checkbox", ...attributes });
  return { input, element: h("label", { class: "tick" }, input, h("span", {}, label)) };
}

export function select(options, chosen, attributes = {}) {
  const all = options.map((each) => (Array.isArray(each) ? each : [each, each]));
  return h(
    "select",
    attributes,
    all.map(([value, text]) => h("option", { value, selected: value === chosen }, text)),
  );
}

/** A table. `columns` are `{title, cell, kind}`; rows are known by `key`, so that focus stays with its row. */
export function table(caption, columns, { key = (row) => row.id } = {}) {
  // Explicit roles: on narrow screens rows are drawn as cards, and browsers would no longer
  // treat them as a table.
  const body = h("tbody", { role: "rowgroup" });
  const head = h(
    "tr",
    { role: "row" },
    columns.map((column) =>
      h("th", { scope: "col", role: "columnheader", class: column.kind }, column.title || h("span", { class: "unseen" }, "More")),
    ),
  );
  const element = h(
    "div",
    { class: "sheet" },
    h("table", { role: "table" }, h("caption", { class: "unseen" }, caption), h("thead", { role: "rowgroup" }, head), body),
  );
  const drawn = new Map();
  arrows(body, "a.row, button.row");
  const draw = (rows) => {
    const kept = new Set();
    rows.forEach((row, at) => {
      const own = String(key(row));
      const text = JSON.stringify(row);
      kept.add(own);
      let known = drawn.get(own);
      if (!known || known.text !== text) {
        const cells = columns.map((column) => {
          const content = column.cell(row);
          return h(
            "td",
            { role: "cell", class: `${column.kind ?? ""}${content === "–" ? " none" : ""}`, "data-title": column.title },
            content,
          );
        });
        const made = h("tr", { role: "row" }, cells);
        const had = known?.element.contains(document.activeElement);
        known?.element.replaceWith(made);
        if (had) made.querySelector("a, button")?.focus();
        known = { text, element: made };
        drawn.set(own, known);
      }
      if (body.children[at] !== known.element) body.insertBefore(known.element, body.children[at] ?? null);
    });
    for (const [own, { element: row }] of drawn) {
      if (kept.has(own)) continue;
      row.remove();
      drawn.delete(own);
    }
  };
  return { element, draw };
}

/** Tabs by arrow keys. `tabs` are `[title, panel]`. */
export function tabs(label, panels, chosen = 0, onChoose = () => {}) {
  const list = h("div", { class: "tabs", role: "tablist", "aria-label": label });
  const buttons = panels.map(([title, panel], at) => {
    panel.id ||= unique("panel");
    panel.setAttribute("role", "tabpanel");
    const button = h(
      "button",
      {
        type: "button",
        role: "tab",
        id: unique("tab"),
        "aria-controls": panel.id,
        on: { click: () => choose(at), focus: () => choose(at) },
      },
      title,
    );
    panel.setAttribute("aria-labelledby", button.id);
    return button;
  });
  let now = -1;
  const choose = (at) => {
    if (at === now) return;
    now = at;
    buttons.forEach((button, each) => {
      button.setAttribute("aria-selected", String(each === at));
      button.tabIndex = each === at ? 0 : -1;
      panels[each][1].hidden = each !== at;
    });
    onChoose(at);
  };
  choose(chosen);
  arrows(add(list, buttons), "[role=tab]", ["ArrowLeft", "ArrowRight"]);
  return { list, choose };
}

/** A modal dialog, closed by Escape. Returns the chosen value. */
export function dialog(title, content, buttons = [["Close", null]]) {
  return new Promise((done) => {
    const id = unique("dialog");
    let chosen = null;
    const foot = buttons.map(([text, value, kind = ""]) =>
      h(
        "button",
        {
          type: "button",
          class: kind,
          on: {
            click: () => {
              chosen = value;
              element.close();
            },
          },
        },
        text,
      ),
    );
    const element = h(
      "dialog",
      { "aria-labelledby": id },
      h("h2", { id }, title),
      h("div", { class: "inside" }, content),
      h("div", { class: "foot" }, foot),
    );
    element.addEventListener("close", () => {
      element.remove();
      done(chosen);
    });
    document.body.append(element);
    element.showModal();
  });
}

/** Closes every dialog, as Escape does. */
export function closeDialogs() {
  for (const element of document.querySelectorAll("dialog[open]")) element.close();
}

/** Asks for confirmation. */
export function sure(title, text, deed) {
  return dialog(title, h("p", {}, text), [
    ["Back", false],
    [deed, true, "danger"],
  ]);
}

export function copyButton(text, label = "Copy") {
  const button = h(
    "button",
    {
      type: "button",
      class: "small",
      on: {
        async click() {
          try {
            await navigator.clipboard.writeText(text());
            button.textContent = "Copied";
            say("Copied");
          } catch {
            button.textContent = "Select and copy it";
          }
          setTimeout(() => {
            button.textContent = label;
          }, 2000);
        },
      },
    },
    label,
  );
  return button;
}

/** A form that runs `deed` on submit, one at a time, and shows errors below. */
export function form(attributes, deed, ...children) {
  const below = h("div", { class: "below" });
  const element = h(
    "form",
    {
      novalidate: true,
      ...attributes,
      on: {
        async submit(event) {
          event.preventDefault();
          const buttons = [...element.querySelectorAll("button[type=submit]")];
          fill(below);
          buttons.forEach((button) => {
            button.disabled = true;
          });
          try {
            const answer = await deed(element);
            if (answer) fill(below, answer);
          } catch (error) {
            fill(below, trouble(error));
          } finally {
            buttons.forEach((button) => {
              button.disabled = false;
            });
          }
        },
      },
    },
    children,
    below,
  );
  return element;
}

/** A text editor with line numbers. */
export function editor(label, attributes = {}) {
  const gutter = h("pre", { class: "gutter", "aria-hidden": "true" });
  const area = h("textarea", {
    class: "code",
    spellcheck: "false",
    autocapitalize: "off",
    autocomplete: "off",
    wrap: "off",
    "aria-label": label,
    ...attributes,
  });
  let lines = 0;
  const count = () => {
    const now = area.value.split("\n").length;
    if (now !== lines) gutter.textContent = Array.from({ length: now }, (_, at) => at + 1).join("\n");
    lines = now;
  };
  area.addEventListener("input", count);
  area.addEventListener("scroll", () => {
    gutter.scrollTop = area.scrollTop;
  });
  count();
  const set = (text) => {
    area.value = text;
    count();
  };
  const go = (row) => {
    const before =
      area.value
        .split("\n")
        .slice(0, row - 1)
        .join("\n").length + (row > 1 ? 1 : 0);
    const end = area.value.indexOf("\n", before);
    area.focus();
    area.setSelectionRange(before, end < 0 ? area.value.length : end);
  };
  return { element: h("div", { class: "editor" }, gutter, area), area, set, go };
}
