// The service: requests with the token, and streams of events.

const KEY = "ringfence-token";

/** What the service says is wrong. */
export class Problem extends Error {
  constructor(status, { code, message, hint } = {}) {
    super(message || `the service answered ${status}`);
    this.status = status;
    this.code = code || "unknown";
    this.hint = hint || null;
  }
}

/** The token lives as long as this tab, and nowhere else. */
export const token = {
  get: () => sessionStorage.getItem(KEY),
  set: (word) => sessionStorage.setItem(KEY, word),
  drop: () => sessionStorage.removeItem(KEY),
};

let unknown = () => {};
/** Who is told when the token is not known any more. */
export function onUnknown(hears) {
  unknown = hears;
}

/** A path of which every part may be anything. */
export function path(strings, ...parts) {
  return strings.reduce((whole, text, at) => whole + text + (at < parts.length ? encodeURIComponent(parts[at]) : ""), "");
}

/** What stands behind the question mark; what is empty is left out. */
export function query(values) {
  const given = Object.entries(values).filter(
    ([, value]) => value !== undefined && value !== null && value !== "" && value !== false,
  );
  return given.length === 0 ? "" : `?${new URLSearchParams(given)}`;
}

export async function send(method, where, { body, form, headers = {}, signal, word = token.get() } = {}) {
  const all = { ...headers };
  if (word) all.Authorization = `Bearer ${word}`;
  if (body !== undefined) all["Content-Type"] = "application/json";
  let answer;
  try {
    answer = await fetch(where, {
      method,
      headers: all,
      signal,
      cache: "no-store",
      credentials: "omit",
      redirect: "error",
      body: form ?? (body === undefined ? undefined : JSON.stringify(body)),
    });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Problem(0, {
      code: "unreachable",
      message: "the service cannot be reached",
      hint: "is it running? This page tries again by itself",
    });
  }
  return answer;
}

async function problem(answer) {
  let said = {};
  try {
    said = await answer.json();
  } catch {
    // Something between us and the service answered in its own words.
  }
  return new Problem(answer.status, said);
}

/** The answer as JSON; a `Problem` is thrown. */
export async function ask(method, where, options = {}) {
  const answer = await send(method, where, options);
  if (answer.status === 401 && options.word === undefined) unknown();
  if (!answer.ok) throw await problem(answer);
  return answer.status === 204 ? null : answer.json();
}

export const get = (where, options) => ask("GET", where, options);

/** Reads a stream of events to its end; `hears` gets each one's kind and data. */
export async function listen(method, where, options, hears) {
  const answer = await send(method, where, { ...options, headers: { Accept: "text/event-stream", ...options.headers } });
  if (answer.status === 401) unknown();
  if (!answer.ok) throw await problem(answer);
  options.opened?.(answer);
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  let event = { kind: "message", data: [] };
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    const lines = (rest + value).split("\n");
    rest = lines.pop();
    for (const text of lines) {
      const row = text.endsWith("\r") ? text.slice(0, -1) : text;
      if (row === "") {
        if (event.data.length > 0) hears(event.kind, JSON.parse(event.data.join("\n")));
        event = { kind: "message", data: [] };
      } else if (row.startsWith("event:")) {
        event.kind = row.slice(6).trim();
      } else if (row.startsWith("data:")) {
        event.data.push(row.slice(5).replace(/^ /, ""));
      }
    }
  }
}
