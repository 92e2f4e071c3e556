// Formats values for users.

/** Makes control characters, escapes and bidirectional marks visible. */
export function visible(text) {
  return String(text)
    .replace(/\r\n/g, "\n")
    .replace(/[\u0000-\u0008\u000b-\u001f]/g, (found) => String.fromCharCode(0x2400 + found.charCodeAt(0)))
    .replace(/\u007f/g, "\u2421")
    .replace(
      /[\u0080-\u009f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff]/g,
      (found) => `\u27e8U+${found.charCodeAt(0).toString(16).toUpperCase().padStart(4, "0")}\u27e9`,
    );
}

/** The same in one line. */
export function line(text) {
  return visible(text).replace(/\n/g, " \u21b5 ").replace(/\t/g, " ");
}

export function duration(ms) {
  if (ms === null || ms === undefined || !Number.isFinite(ms)) return "\u2013";
  if (ms > 0 && ms < 1) return `${Math.round(ms * 1000)} \u00b5s`;
  if (ms < 1000) return `${Math.round(ms)} ms`;
  if (ms < 60_000) return `${(ms / 1000).toFixed(ms < 10_000 ? 2 : 1)} s`;
  if (ms < 3_600_000) return `${Math.floor(ms / 60_000)} min ${Math.round((ms % 60_000) / 1000)} s`;
  return `${Math.floor(ms / 3_600_000)} h ${Math.round((ms % 3_600_000) / 60_000)} min`;
}

export function bytes(count) {
  if (count === null || count === undefined || !Number.isFinite(count)) return "\u2013";
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let at = 0;
  let value = count;
  while (value >= 1024 && at < units.length - 1) {
    value /= 1024;
    at += 1;
  }
  return `${at === 0 || value >= 100 ? Math.round(value) : value.toFixed(1)} ${units[at]}`;
}

const two = (number) => String(number).padStart(2, "0");

export function clock(ms) {
  if (!ms) return "\u2013";
  const date = new Date(ms);
  return `${two(date.getHours())}:${two(date.getMinutes())}:${two(date.getSeconds())}`;
}

export function stamp(ms) {
  if (!ms) return "\u2013";
  const date = new Date(ms);
  return `${date.getFullYear()}-${two(date.getMonth() + 1)}-${two(date.getDate())} ${clock(ms)}`;
}

/** The time alone if it was today. */
export function when(ms) {
  return ms && new Date(ms).toDateString() === new Date().toDateString() ? clock(ms) : stamp(ms);
}

export function number(value) {
  return Number(value).toLocaleString("en");
}

export function many(count, one, several = `${one}s`) {
  return `${number(count)} ${count === 1 ? one : several}`;
}

/** The value of a limit, in its unit. */
export function amount(limit, value) {
  if (limit === "wall" || limit === "cpu") return duration(value);
  if (limit === "processes" || limit === "open-files") return number(value);
  return bytes(value);
}
