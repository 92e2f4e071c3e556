// The output of a command, streamed.

import { fill, h } from "./dom.js";
import { visible } from "./format.js";

/** Characters shown per stream; the oldest are dropped first. */
const SHOWN = 1 << 20;

class Pane {
  constructor(title, kind) {
    this.text = h("pre", { class: `stream ${kind}`, tabindex: "0", "aria-label": title });
    this.element = h("section", { class: "pane", hidden: true }, h("h2", {}, title), this.text);
    this.decoder = new TextDecoder();
    this.length = 0;
    this.waiting = "";
  }

  /** An incomplete UTF-8 sequence waits for its rest. */
  push({ text, base64 }) {
    const bytes =
      base64 === undefined ? new TextEncoder().encode(text) : Uint8Array.from(atob(base64), (each) => each.charCodeAt(0));
    this.write(this.decoder.decode(bytes, { stream: true }));
  }

  write(text) {
    if (text === "") return;
    this.element.hidden = false;
    if (this.waiting === "") requestAnimationFrame(() => this.draw());
    this.waiting += text;
  }

  draw() {
    const shown = visible(this.waiting);
    this.waiting = "";
    const isAtEnd = this.text.scrollHeight - this.text.scrollTop - this.text.clientHeight < 24;
    this.text.append(document.createTextNode(shown));
    this.length += shown.length;
    while (this.length > SHOWN && this.text.childNodes.length > 1) {
      this.length -= this.text.firstChild.length;
      this.text.firstChild.remove();
    }
    if (isAtEnd) this.text.scrollTop = this.text.scrollHeight;
  }

  clear() {
    this.element.hidden = true;
    this.decoder = new TextDecoder();
    this.waiting = "";
    this.length = 0;
    fill(this.text);
  }
}

/** Both streams. */
export function output() {
  const out = new Pane("Standard output", "out");
  const err = new Pane("Standard error", "err");
  const note = h("p", { class: "quiet", role: "status" });
  const element = h("div", { class: "output" }, note, out.element, err.element);
  const clear = () => {
    out.clear();
    err.clear();
    note.textContent = "";
  };
  const nothing = () => {
    if (out.element.hidden && err.element.hidden) note.textContent = "No output.";
  };
  return {
    element,
    clear,
    begins() {
      clear();
      note.textContent = "Running. Output appears here.";
    },
    isEmpty: () => out.element.hidden && err.element.hidden,
    heard(kind, data) {
      if (kind === "stdout") out.push(data);
      if (kind === "stderr") err.push(data);
      if (kind === "missed") out.write(`\n… ${data.chunks} earlier chunks are no longer kept …\n`);
    },
    ends(result) {
      note.textContent = result?.truncated ? "Output was truncated." : "";
      nothing();
    },
    /** Shows the output of an ended command. */
    result(result) {
      clear();
      if (!result) return;
      out.write(result.stdout ?? "");
      err.write(result.stderr ?? "");
      if (result.truncated) note.textContent = "Output was truncated.";
      nothing();
    },
  };
}
