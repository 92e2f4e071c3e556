// The service: requests with the token, and streams of events.

const KEY = "ringfence-token";

/** An error response of the service. */
export class Problem extends Error {
  constructor(status, { code, message, hint } = {}) {
    super(message || `the service answered ${status}`);
    this.status = status;
    this.code = code || "unknown";
    this.hint = hint || null;
  }
}

/** The token, stored for the lifetime of this tab only. */
export const token = {
  get: () => sessionStorage.getItem(KEY),
  set: (word) => sessionStorage.setItem(KEY, word),
  drop: () => sessionStorage.removeItem(KEY),
};

let unknown = () => {};
/** Sets the callback for a token that is no longer valid. */
export function onUnknown(hears) {
  unknown = hears;
}

/** A path with its parts URL-encoded. */
export function path(strings, ...parts) {
  return strings.reduce((whole, text, at) => whole + text + (at < parts.length ? encodeURIComponent(parts[at]) : ""), "");
}

/** A query string without empty values. */
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
      message: "cannot reach the service",
      hint: "check that the service runs; this page retries by itself",
    });
  }
  return answer;
}

async function problem(answer) {
  let said = {};
  try {
    said = await answer.json();
  } catch {
    // A proxy answered without JSON.
  }
  return new Problem(answer.status, said);
}

/** The response as JSON; throws a `Problem`. */
export async function ask(method, where, options = {}) {
  const answer = await send(method, where, options);
  if (answer.status === 401 && options.word === undefined) unknown();
  if (!answer.ok) throw await problem(answer);
  return answer.status === 204 ? null : answer.json();
}

export const get = (where, options) => ask("GET", where, options);

/** Reads an event stream to its end; `hears` gets the kind and data of each event. */
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
