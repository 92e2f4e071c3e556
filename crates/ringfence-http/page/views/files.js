// The files of a skill: list, read and edit.

import { arrows, fill, h, say } from "../dom.js";
import { bytes, line, stamp } from "../format.js";
import { live } from "../live.js";
import { ask, get, path, query } from "../remote.js";
import { dialog, editor, empty, field, name, trouble } from "../widgets.js";

export async function files(place, id, signal) {
  const at = path`/v1/skills/${id.user}/${id.agent}/${id.skill}`;
  const list = h("ul", { class: "files", "aria-label": "Files" });
  const shown = h("div", { class: "file" }, empty("Choose a file."));
  const make = h("button", { type: "button", class: "small", on: { click: () => anew() } }, "New file");
  fill(
    place,
    h(
      "div",
      { class: "split" },
      h(
        "section",
        {},
        h("div", { class: "title" }, h("h2", {}, "Files"), h("span", { class: "space" }), live.may("skills:write") && make),
        arrows(list, "button"),
      ),
      shown,
    ),
  );
  let open = null;

  async function load() {
    const found = await get(`${at}/files`, { signal });
    const sorted = found.files.toSorted((one, other) => (one.path < other.path ? -1 : 1));
    fill(
      list,
      sorted.map((each) => {
        const depth = Math.min(6, each.path.split("/").length - 1);
        const leaf = each.path.split("/").at(-1);
        if (each.kind !== "file")
          return h(
            "li",
            { class: `depth-${depth}` },
            h("span", { class: "dir" }, name(leaf), each.kind === "directory" ? "/" : ` (${each.kind})`),
          );
        return h(
          "li",
          { class: `depth-${depth}` },
          h(
            "button",
            {
              type: "button",
              class: "file-link",
              "data-path": each.path,
              "aria-current": open === each.path ? "true" : undefined,
              title: line(each.path),
              on: { click: () => read(each.path) },
            },
            name(leaf),
            h("span", { class: "quiet" }, bytes(each.bytes)),
          ),
        );
      }),
    );
    if (sorted.length === 0) fill(list, h("li", {}, empty("No files.")));
    return sorted;
  }

  function mark() {
    for (const button of list.querySelectorAll("button")) {
      if (button.dataset.path === open) button.setAttribute("aria-current", "true");
      else button.removeAttribute("aria-current");
    }
  }

  let isChanged = () => false;
  async function read(which) {
    if (
      isChanged() &&
      !(await dialog("Discard the changes?", h("p", {}, "Your changes to this file are not saved."), [
        ["Stay", false],
        ["Discard", true, "danger"],
      ]))
    )
      return;
    try {
      const content = await get(`${at}/content${query({ path: which })}`, { signal });
      open = which;
      mark();
      draw(content);
    } catch (error) {
      if (!signal.aborted) fill(shown, trouble(error));
    }
  }

  function draw(content) {
    isChanged = () => false;
    const head = h(
      "p",
      { class: "quiet" },
      name(content.path, "mono"),
      ` · ${bytes(content.bytes)} · ${stamp(content.modifiedMs)}`,
      content.executable && " · executable",
    );
    const text = content.content;
    if (content.encoding !== "text") {
      fill(
        shown,
        head,
        empty("Not a text file.", h("p", { class: "quiet" }, "To replace it, upload the skill again.")),
      );
      return;
    }
    const mayWrite = live.may("skills:write") && !content.truncated;
    const edit = editor(`Content of ${line(content.path)}`, {
      readOnly: !mayWrite,
      on: {
        keydown(event) {
          if (event.key !== "s" || !(event.ctrlKey || event.metaKey)) return;
          event.preventDefault();
          if (mayWrite) save();
        },
        input: () => {
          state.textContent = isChanged() ? "Changed" : "";
        },
      },
    });
    // A text area has LF line endings only. A file with only CRLF endings keeps them.
    const had = text.replace(/\r\n?/g, "\n");
    const ending = had.replace(/\n/g, "\r\n") === text ? "\r\n" : "\n";
    const isMixed = had.replace(/\n/g, ending) !== text;
    let { etag } = content;
    let saved = had;
    edit.set(had);
    isChanged = () => edit.area.value !== saved;
    const state = h("span", { class: "quiet", role: "status" });
    const below = h("div", { class: "below" });
    const button = h("button", { type: "button", class: "first", on: { click: () => save() } }, "Save");
    async function save(expect = etag) {
      const now = edit.area.value;
      button.disabled = true;
      fill(below);
      try {
        const done = await ask("PUT", `${at}/edit`, {
          body: { path: content.path, content: now.replace(/\n/g, ending), expect },
        });
        etag = done.etag;
        saved = now;
        state.textContent = "Saved";
        say("Saved");
        if (done.warnings?.length > 0)
          fill(
            below,
            h(
              "section",
              { class: "callout warn" },
              h(
                "ul",
                {},
                done.warnings.map((each) => h("li", {}, each.line ? `line ${each.line}: ` : "", line(each.what))),
              ),
            ),
          );
        load().catch(() => {});
      } catch (error) {
        fill(below, error.status === 409 ? conflict(error) : trouble(error));
      } finally {
        button.disabled = false;
      }
    }
    const conflict = (error) =>
      h(
        "section",
        { class: "callout bad", role: "alert" },
        h("p", {}, h("b", {}, "Not saved: "), line(error.message)),
        h("p", {}, "The file has changed since you opened it. Your text is still here."),
        h(
          "div",
          { class: "buttons" },
          h(
            "button",
            {
              type: "button",
              on: {
                click: () => {
                  isChanged = () => false;
                  read(content.path);
                },
              },
            },
            "Load the new version",
          ),
          h(
            "button",
            {
              type: "button",
              class: "danger",
              on: {
                async click() {
                  const there = await get(`${at}/content${query({ path: content.path })}`, { signal });
                  save(there.etag);
                },
              },
            },
            "Overwrite it",
          ),
        ),
      );
    fill(
      shown,
      head,
      content.truncated && h("p", { class: "notice" }, "The file is too long to edit here; only a part is shown."),
      isMixed && h("p", { class: "notice" }, "The file has mixed line endings. Saving makes them uniform."),
      edit.element,
      h("div", { class: "buttons" }, mayWrite && button, state),
      below,
    );
  }

  async function anew() {
    const where = h("input", { type: "text", autocomplete: "off", spellcheck: "false", placeholder: "scripts/run.sh" });
    const chosen = await dialog("New file", field("Path, relative to the skill’s directory", where), [
      ["Cancel", false],
      ["Create", true, "first"],
    ]);
    if (!chosen || !where.value.trim()) return;
    try {
      await ask("PUT", `${at}/edit`, { body: { path: where.value.trim(), content: "" } });
      await load();
      await read(where.value.trim());
    } catch (error) {
      fill(shown, trouble(error));
    }
  }

  const all = await load();
  const first = all.find((each) => each.path === "SKILL.md") ?? all.find((each) => each.kind === "file");
  if (first) await read(first.path);
}
