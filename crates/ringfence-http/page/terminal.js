// A terminal emulator: output becomes a screen of characters, and keys become input.
// Colours are ignored; cursor movement and erasing are supported.

import { h } from "./dom.js";

/** Scrollback lines. */
const KEPT = 1000;

/** The screen of a terminal, as text. */
export class Screen {
  constructor(columns = 80, rows = 24) {
    Object.assign(this, { columns, rows, above: [], row: 0, column: 0, saved: [0, 0], top: 0, bottom: rows - 1, rest: "" });
    this.lines = Array.from({ length: rows }, () => this.blank());
  }

  blank() {
    return Array(this.columns).fill(" ");
  }

  resize(columns, rows) {
    this.lines = this.lines.map((line) => [...line.slice(0, columns), ...Array(Math.max(0, columns - line.length)).fill(" ")]);
    this.columns = columns;
    while (this.lines.length > rows) {
      const gone = this.lines.shift();
      this.above.push(gone.join("").trimEnd());
      this.row = Math.max(0, this.row - 1);
    }
    while (this.lines.length < rows) this.lines.push(this.blank());
    Object.assign(this, { rows, top: 0, bottom: rows - 1, column: Math.min(this.column, columns - 1) });
  }

  /** Processes output. An incomplete sequence waits for its rest. */
  write(text) {
    let all = this.rest + text;
    this.rest = "";
    while (all !== "") {
      // eslint-disable-next-line no-control-regex
      const found = /^(?:\x1b\[([?>=!]?)([\d;:]*)[ -/]*([@-~])|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)|\x1b[()*+#%][^]|\x1b([^[\]()*+#%]))/.exec(all);
      if (found) {
        all = all.slice(found[0].length);
        if (found[3]) this.control(found[1], found[2].split(/[;:]/).map(Number), found[3]);
        else if (found[4]) this.escape(found[4]);
      } else if (all[0] === "\x1b" && all.length < 4096) {
        this.rest = all;
        return;
      } else {
        const [character] = all;
        all = all.slice(character.length);
        this.type(character);
      }
    }
  }

  type(character) {
    const code = character.codePointAt(0);
    if (character === "\r") this.column = 0;
    else if (character === "\n" || code === 11 || code === 12) this.feed();
    else if (character === "\b") this.column = Math.max(0, this.column - 1);
    else if (character === "\t") this.column = Math.min(this.columns - 1, (Math.floor(this.column / 8) + 1) * 8);
    else if (code >= 32 && code !== 127) {
      if (this.column >= this.columns) {
        this.column = 0;
        this.feed();
      }
      this.lines[this.row][this.column] = character;
      this.column += 1;
    }
  }

  feed() {
    if (this.row === this.bottom) this.scroll(1);
    else this.row = Math.min(this.rows - 1, this.row + 1);
  }

  scroll(count) {
    for (let each = 0; each < Math.min(Math.abs(count), this.rows); each += 1) {
      if (count > 0) {
        const [gone] = this.lines.splice(this.top, 1);
        this.lines.splice(this.bottom, 0, this.blank());
        if (this.top === 0) this.above.push(gone.join("").trimEnd());
      } else {
        this.lines.splice(this.bottom, 1);
        this.lines.splice(this.top, 0, this.blank());
      }
    }
    this.above.splice(0, this.above.length - KEPT);
  }

  escape(letter) {
    if (letter === "7") this.saved = [this.row, this.column];
    else if (letter === "8") [this.row, this.column] = this.saved;
    else if (letter === "D") this.feed();
    else if (letter === "E") {
      this.column = 0;
      this.feed();
    } else if (letter === "M") {
      if (this.row === this.top) this.scroll(-1);
      else this.row = Math.max(0, this.row - 1);
    } else if (letter === "c") {
      this.lines = this.lines.map(() => this.blank());
      Object.assign(this, { row: 0, column: 0, top: 0, bottom: this.rows - 1 });
    }
  }

  control(mark, numbers, letter) {
    if (mark) {
      // The alternate screen is not supported: the screen is cleared.
      if ((letter === "h" || letter === "l") && numbers.some((each) => [47, 1047, 1049].includes(each))) this.escape("c");
      return;
    }
    const first = numbers[0] || 0;
    const count = Math.min(first || 1, 10_000);
    const line = this.lines[this.row];
    const column = Math.min(this.column, this.columns - 1);
    const to = (row, at) => {
      this.row = Math.max(0, Math.min(this.rows - 1, row));
      this.column = Math.max(0, Math.min(this.columns - 1, at));
    };
    const moves = {
      A: () => to(this.row - count, column),
      B: () => to(this.row + count, column),
      C: () => to(this.row, column + count),
      D: () => to(this.row, column - count),
      E: () => to(this.row + count, 0),
      F: () => to(this.row - count, 0),
      G: () => to(this.row, count - 1),
      "`": () => to(this.row, count - 1),
      d: () => to(count - 1, column),
      H: () => to(count - 1, (numbers[1] || 1) - 1),
      f: () => to(count - 1, (numbers[1] || 1) - 1),
      J: () => this.erase(first, column),
      K: () => line.fill(" ", first === 0 ? column : 0, first === 1 ? column + 1 : this.columns),
      X: () => line.fill(" ", column, column + count),
      P: () => this.cut(line, column, count),
      "@": () => {
        line.splice(column, 0, ...Array(Math.min(count, this.columns)).fill(" "));
        line.length = this.columns;
      },
      L: () => this.within(() => this.scroll(-count)),
      M: () => this.within(() => this.scroll(count)),
      S: () => this.scroll(count),
      T: () => this.scroll(-count),
      r: () => {
        const bottom = Math.min(this.rows, numbers[1] || this.rows) - 1;
        [this.top, this.bottom] = count - 1 < bottom ? [count - 1, bottom] : [0, this.rows - 1];
        to(0, 0);
      },
      s: () => {
        this.saved = [this.row, column];
      },
      u: () => to(...this.saved),
    };
    moves[letter]?.();
  }

  cut(line, column, count) {
    line.splice(column, Math.min(count, this.columns - column));
    while (line.length < this.columns) line.push(" ");
  }

  /** Scrolls from the cursor's row on, without adding to the scrollback. */
  within(deed) {
    const [{ top }, kept] = [this, this.above];
    this.top = this.row;
    this.above = [];
    deed();
    Object.assign(this, { top, above: kept });
  }

  erase(how, column) {
    this.lines.forEach((line, at) => {
      if (how >= 2 || (how === 0 ? at > this.row : at < this.row)) line.fill(" ");
    });
    if (how === 0) this.lines[this.row].fill(" ", column);
    if (how === 1) this.lines[this.row].fill(" ", 0, column + 1);
    if (how === 3) this.above = [];
  }

  /** All lines, and the cursor position among them. */
  text() {
    const lines = [...this.above, ...this.lines.map((line) => line.join("").trimEnd())];
    const row = this.above.length + this.row;
    while (lines.length - 1 > row && lines.at(-1) === "") lines.pop();
    return { lines, row, column: Math.min(this.column, this.columns - 1) };
  }
}

const KEYS = {
  Enter: "\r",
  Backspace: "\x7f",
  Tab: "\t",
  Escape: "\x1b",
  ArrowUp: "\x1b[A",
  ArrowDown: "\x1b[B",
  ArrowRight: "\x1b[C",
  ArrowLeft: "\x1b[D",
  Home: "\x1b[H",
  End: "\x1b[F",
  Delete: "\x1b[3~",
  PageUp: "\x1b[5~",
  PageDown: "\x1b[6~",
};

/** The input for a key; `null` if the browser handles the key. */
export function typed({ key, ctrlKey, altKey, metaKey, shiftKey }) {
  // Shift+Tab leaves the terminal, for keyboard users.
  if (metaKey || (key === "Tab" && shiftKey) || (ctrlKey && shiftKey)) return null;
  if (ctrlKey && !altKey && /^[a-z@[\\\]^_]$/i.test(key)) return String.fromCharCode(key.toUpperCase().charCodeAt(0) & 31);
  if (ctrlKey) return null;
  const text = KEYS[key] ?? ([...key].length === 1 ? key : null);
  return text !== null && altKey ? `\x1b${text}` : text;
}

/** A terminal element. `sends` gets the input. */
export function terminal(label, sends) {
  const screen = new Screen();
  const shown = h("pre", {
    class: "terminal",
    tabindex: "0",
    role: "textbox",
    "aria-multiline": "true",
    "aria-label": label,
    on: {
      keydown(event) {
        const text = typed(event);
        if (text === null) return;
        event.preventDefault();
        event.stopPropagation();
        sends(text);
      },
      paste(event) {
        event.preventDefault();
        sends(event.clipboardData.getData("text/plain").replace(/\r?\n/g, "\r"));
      },
    },
  });
  const decoder = new TextDecoder();
  let isDue = false;
  const draw = () => {
    isDue = false;
    const { lines, row, column } = screen.text();
    const line = lines[row].padEnd(column + 1);
    const before = [...lines.slice(0, row), line.slice(0, column)].join("\n");
    const after = [line.slice(column + 1), ...lines.slice(row + 1)].join("\n");
    shown.replaceChildren(before, h("span", { class: "cursor" }, line[column]), after);
    shown.scrollTop = shown.scrollHeight;
  };
  draw();
  return {
    element: shown,
    write(bytes) {
      screen.write(decoder.decode(bytes, { stream: true }));
      if (!isDue) requestAnimationFrame(draw);
      isDue = true;
    },
  };
}
