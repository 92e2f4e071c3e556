// Live sandboxes: create, list, and the details of one with a shell, a terminal and its files.

import { fill, h, put, say } from "../dom.js";
import { bytes, duration, line, many, number, stamp, when } from "../format.js";
import { live, watch } from "../live.js";
import { output } from "../output.js";
import { ask, get, listen, path, query, token } from "../remote.js";
import { terminal } from "../terminal.js";
import { chip, dialog, editor, empty, field, form, name, sure, table, tabs, tick, trouble } from "../widgets.js";
import { refusals } from "./denials.js";
import { stateChip } from "./executions.js";

const LONGEST = 300;

export function show(main, [id], signal) {
  if (id) return detail(main, id, signal);
  const place = h("div");
  const list = table("Live sandboxes", [
    { title: "Sandbox", kind: "mono", cell: (each) => h("a", { class: "row", href: path`#/sandboxes/${each.id}` }, name(each.id)) },
    { title: "Tenant", cell: (each) => name(each.userId) },
    { title: "Labels", kind: "grow", cell: (each) => labels(each.labels) },
    { title: "Since", kind: "time", cell: (each) => when(each.createdMs) },
    { title: "Until", kind: "time", cell: (each) => when(each.expiresMs) },
    { title: "Commands", kind: "right", cell: (each) => number(each.commands) },
    { title: "State", cell: (each) => (each.busy ? chip("busy", "run") : chip("idle")) },
  ]);
  put(main, h("h1", {}, "Sandboxes"), maker(), h("h2", {}, "Live"), place);
  watch(signal, ["sandboxes"], () => {
    if (!live.sandboxes?.length) return fill(place, empty("No sandboxes."));
    if (!place.contains(list.element)) fill(place, list.element);
    list.draw(live.sandboxes);
  });
}

function labels(given = {}) {
  const all = Object.entries(given);
  return all.length === 0 ? "–" : all.map(([key, value]) => [name(`${key}=${value}`, "mono"), " "]);
}

function maker() {
  const user = h("input", { type: "text", autocomplete: "off", spellcheck: "false", value: live.me?.userId ?? "" });
  user.readOnly = Boolean(live.me?.userId);
  const minutes = h("input", { type: "number", min: "1", max: "1440", value: "10", class: "short" });
  const asks = tick("Ask me about denied accesses");
  return form(
    { class: "stack" },
    async () => {
      const body = { ttlSeconds: Math.round(Number(minutes.value) * 60), ask: asks.input.checked };
      if (user.value.trim()) body.userId = user.value.trim();
      const made = await ask("POST", "/v1/sandboxes", { body });
      say("The sandbox was created");
      live.soon();
      location.hash = path`#/sandboxes/${made.id}`;
    },
    h("div", { class: "run-fields" }, field("Tenant", user), field("Lifetime (minutes)", minutes), asks.element),
    h("div", { class: "buttons" }, h("button", { type: "submit", class: "first" }, "Create a sandbox")),
  );
}

function detail(main, id, signal) {
  const at = path`/v1/sandboxes/${id}`;
  const facts = h("dl", { class: "facts" });
  const below = h("div", { class: "below" });
  const end = h("button", { type: "button", class: "danger", on: { click: () => ends() } }, "End it");
  const panels = [
    ["Run", h("div")],
    ["Terminal", h("div")],
    ["Files", h("div")],
  ];
  const begun = new Set();
  const bar = tabs("Parts of the sandbox", panels, 0, (which) => {
    if (begun.has(which)) return;
    begun.add(which);
    [runner, seat, files][which](panels[which][1], at, signal);
  });
  put(
    main,
    h("p", { class: "back" }, h("a", { href: "#/sandboxes" }, "← Sandboxes")),
    h("div", { class: "title" }, h("h1", {}, "Sandbox"), h("span", { class: "space" }), end),
    facts,
    below,
    bar.list,
    panels.map(([, panel]) => panel),
  );
  async function ends() {
    if (!(await sure("End this sandbox?", "This ends everything in it and removes its directory.", "End it"))) return;
    try {
      await ask("DELETE", at);
      say("The sandbox has ended");
      live.soon();
      location.hash = "#/sandboxes";
    } catch (error) {
      fill(below, trouble(error));
    }
  }
  async function load() {
    const now = await get(at, { signal });
    const rows = [
      ["Id", name(now.id, "mono")],
      ["Tenant", name(now.userId)],
      ["Labels", labels(now.labels)],
      ["Directory", name(now.workspace, "mono")],
      ["Created", stamp(now.createdMs)],
      ["Until", stamp(now.expiresMs)],
      ["Hosts", now.hosts.length === 0 ? "none" : now.hosts.map((host) => [name(host, "mono"), " "])],
    ];
    fill(
      facts,
      rows.map(([term, value]) => h("div", {}, h("dt", {}, term), h("dd", {}, value))),
    );
  }
  load().catch((error) => {
    if (!signal.aborted) fill(below, trouble(error));
  });
}

/** Runs a command in the sandbox's shell. */
function runner(place, at, signal) {
  const command = h("textarea", {
    rows: "3",
    class: "code alone",
    spellcheck: "false",
    autocapitalize: "off",
    placeholder: "ls -l",
    on: {
      keydown(event) {
        if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) element.requestSubmit();
      },
    },
  });
  const seconds = h("input", { type: "number", min: "1", max: String(LONGEST), value: "60", class: "short" });
  const stop = h("button", { type: "button", class: "danger", hidden: true, on: { click: () => interrupt() } }, "Interrupt");
  const streams = output();
  const summary = h("div", { class: "stack" });
  async function run() {
    if (command.value.trim() === "") throw new Error("Type a command first.");
    const limit = Number(seconds.value);
    if (!(limit >= 1 && limit <= LONGEST)) throw new Error(`The time limit must be 1 to ${LONGEST} seconds.`);
    fill(summary);
    streams.begins();
    stop.hidden = false;
    let end = null;
    try {
      const body = { command: command.value, timeoutMs: Math.round(limit * 1000) };
      await listen("POST", `${at}/exec`, { body, signal }, (kind, data) => {
        if (kind === "result" || kind === "error") end = { kind, data };
        streams.heard(kind, data);
      });
    } catch (error) {
      if (signal.aborted) return;
      streams.clear();
      throw error;
    } finally {
      stop.hidden = true;
    }
    if (end?.kind === "error") {
      streams.clear();
      fill(summary, trouble(end.data));
    } else if (end) {
      if (streams.isEmpty()) streams.result(end.data);
      else streams.ends(end.data);
      draw(end.data);
    }
  }
  async function interrupt() {
    try {
      await ask("POST", `${at}/interrupt`);
      say("The command was interrupted.");
    } catch (error) {
      fill(summary, trouble(error));
    }
  }
  function draw(result) {
    fill(
      summary,
      h(
        "div",
        { class: "title" },
        stateChip({ state: "ended", result }),
        h("span", {}, `exit ${result.exitCode} after ${duration(result.durationMs)}`),
        result.cwd && h("span", { class: "quiet" }, "now in ", name(result.cwd, "mono")),
      ),
      result.blocked && h("section", { class: "callout bad" }, h("h2", {}, "Blocked"), h("p", {}, line(result.blockedReason))),
      result.denials.length > 0 && h("section", {}, h("h2", {}, many(result.denials.length, "denial")), refusals(result.denials)),
    );
    say(`The command has ended with ${result.exitCode}.`);
  }
  const element = form(
    { class: "stack" },
    run,
    field("Bash command", command, "Ctrl+Enter runs it. Directory and environment variables persist; leaving this view interrupts it."),
    h("div", { class: "run-fields" }, field("Time limit (seconds)", seconds)),
    h("div", { class: "buttons" }, h("button", { type: "submit", class: "first" }, "Run"), stop),
  );
  fill(place, h("div", { class: "stack" }, element, summary, streams.element));
}

/** A separate shell on a terminal. */
function seat(place, at, signal) {
  const below = h("div", { class: "below" });
  const state = h("p", { class: "quiet", role: "status" });
  const frame = h("div");
  const open = h("button", { type: "button", class: "first", on: { click: () => connect() } }, "Open a terminal");
  fill(
    place,
    h("p", { class: "quiet" }, "A second shell in the same sandbox. Shift+Tab leaves the terminal; closing the view ends the shell."),
    h("div", { class: "buttons" }, open),
    state,
    frame,
    below,
  );
  function connect() {
    open.disabled = true;
    fill(below);
    const where = new URL(`${at}/terminal?columns=80&rows=24`, location.href);
    where.protocol = where.protocol.replace("http", "ws");
    const socket = new WebSocket(where, ["ringfence", `ringfence.token.${token.get()}`]);
    socket.binaryType = "arraybuffer";
    const shown = terminal("Terminal", (text) => {
      if (socket.readyState === WebSocket.OPEN) socket.send(new TextEncoder().encode(text));
    });
    fill(frame, shown.element);
    let end = "Closed.";
    socket.addEventListener("open", () => {
      state.textContent = "Connected";
      shown.element.focus();
    });
    socket.addEventListener("message", ({ data }) => {
      if (typeof data === "string") end = `The shell has ended with ${JSON.parse(data).exitCode}.`;
      else shown.write(new Uint8Array(data));
    });
    socket.addEventListener("close", () => {
      if (signal.aborted) return;
      state.textContent = end;
      open.disabled = false;
      open.textContent = "Open another";
    });
    signal.addEventListener("abort", () => socket.close());
  }
}

/** The sandbox's directory. */
function files(place, at, signal) {
  const trail = h("p", { class: "trail" });
  const list = h("ul", { class: "files", "aria-label": "Files" });
  const shown = h("div", { class: "file" }, empty("Choose a file."));
  const below = h("div", { class: "below" });
  const bring = h("input", { type: "file", multiple: true, "aria-label": "Upload files", on: { change: () => brought() } });
  const make = h("button", { type: "button", class: "small", on: { click: () => directory() } }, "New directory");
  fill(
    place,
    h("div", { class: "buttons" }, bring, make),
    below,
    trail,
    h("div", { class: "split" }, h("section", {}, h("h2", {}, "Files"), list), shown),
  );
  let here = "";
  const within = (leaf) => (here ? `${here}/${leaf}` : leaf);
  const trying = async (deed) => {
    fill(below);
    try {
      await deed();
    } catch (error) {
      if (!signal.aborted) fill(below, trouble(error));
    }
  };
  const step = (where, text) => h("button", { type: "button", class: "small quietly", on: { click: () => go(where) } }, text);
  function go(where) {
    return trying(async () => {
      const found = await get(`${at}/files${query({ path: where })}`, { signal });
      here = where;
      const parts = where.split("/").filter(Boolean);
      fill(trail, step("", "/"), parts.map((part, each) => step(parts.slice(0, each + 1).join("/"), line(part))));
      const entries = found.entries.toSorted((one, other) => (one.path < other.path ? -1 : 1));
      fill(list, entries.length === 0 ? h("li", {}, empty("Empty directory.")) : entries.map(row));
      if (found.truncated) fill(below, h("p", { class: "notice" }, "Only a part is shown."));
    });
  }
  function row(each) {
    const isDirectory = each.kind === "directory";
    const open = () => (isDirectory ? go(within(each.path)) : read(within(each.path)));
    return h(
      "li",
      {},
      h(
        "button",
        { type: "button", class: "file-link", title: line(each.path), on: { click: open } },
        name(isDirectory ? `${each.path}/` : each.path),
        h("span", { class: "quiet" }, isDirectory ? "" : each.size === undefined ? each.kind : bytes(each.size)),
      ),
    );
  }
  function read(which) {
    return trying(async () => {
      const found = await get(`${at}/files${query({ path: which })}`, { signal });
      const head = h("p", { class: "quiet" }, name(which, "mono"), ` · ${bytes(found.size)}`);
      const gone = h("button", { type: "button", class: "danger", on: { click: () => removed(which) } }, "Remove");
      if (found.text === undefined || found.truncated) {
        fill(shown, head, empty(found.truncated ? "The file is too long to show." : "Not a text file."), h("div", { class: "buttons" }, gone));
        return;
      }
      const edit = editor(`Content of ${line(which)}`);
      edit.set(found.text);
      const save = h("button", { type: "button", class: "first", on: { click: () => saved(which, edit.area.value) } }, "Save");
      fill(shown, head, edit.element, h("div", { class: "buttons" }, save, gone));
    });
  }
  const saved = (which, text) =>
    trying(async () => {
      await store(which, text);
      say("Saved");
      await go(here);
    });
  const store = (which, content) =>
    ask("PUT", `${at}/files${query({ path: which })}`, { form: content, headers: { "Content-Type": "application/octet-stream" } });
  const removed = (which) =>
    trying(async () => {
      if (!(await sure("Remove this file?", line(which), "Remove it"))) return;
      await ask("DELETE", `${at}/files${query({ path: which })}`);
      fill(shown, empty("Choose a file."));
      await go(here);
    });
  const brought = () =>
    trying(async () => {
      for (const each of bring.files) await store(within(each.name), each);
      say(`Uploaded: ${many(bring.files.length, "file")}`);
      bring.value = "";
      await go(here);
    });
  const directory = () =>
    trying(async () => {
      const where = h("input", { type: "text", autocomplete: "off", spellcheck: "false" });
      const chosen = await dialog("New directory", field("Name", where), [
        ["Cancel", false],
        ["Create", true, "first"],
      ]);
      if (!chosen || !where.value.trim()) return;
      await ask("POST", `${at}/files${query({ path: within(where.value.trim()) })}`);
      await go(here);
    });
  go("");
}
