// The API reference from /openapi.json, with a form for each operation.

import { add, arrows, fill, h, put } from "../dom.js";
import { bytes, line, visible } from "../format.js";
import { get, query, send, token } from "../remote.js";
import { chip, copyButton, field, form, select, tick, trouble } from "../widgets.js";

const TONES = { get: "ok", post: "run", put: "warn", patch: "warn", delete: "bad" };
/** Characters of a response that are shown. */
const SHOWN = 200_000;

export function show(main, [wanted], signal) {
  const filter = h("input", { type: "search", placeholder: "Path or text", "aria-label": "Filter operations" });
  const place = h("div", { class: "stack" });
  put(
    main,
    h(
      "div",
      { class: "title" },
      h("h1", {}, "API"),
      h("span", { class: "space" }),
      h("a", { href: "/openapi.json" }, "openapi.json"),
    ),
    h("div", { class: "filters", role: "search", "aria-label": "Filter operations" }, filter),
    place,
  );
  get("/openapi.json", { signal })
    .then((document) => {
      const tags = new Map();
      for (const [where, methods] of Object.entries(document.paths)) {
        for (const [method, operation] of Object.entries(methods)) {
          const tag = operation.tags?.[0] ?? "other";
          if (!tags.has(tag)) tags.set(tag, []);
          tags.get(tag).push(entry(document, where, method, operation));
        }
      }
      fill(
        place,
        [...tags].map(([tag, entries]) => h("section", { class: "operations" }, h("h2", {}, tag), entries)),
      );
      arrows(place, "summary");
      if (wanted) place.querySelector(`[data-id="${CSS.escape(wanted)}"]`)?.setAttribute("open", "");
      filter.addEventListener("input", () => {
        const words = filter.value.toLowerCase();
        for (const each of place.querySelectorAll("details.operation")) each.hidden = !each.dataset.text.includes(words);
        for (const section of place.children)
          section.hidden = [...section.querySelectorAll("details.operation")].every((each) => each.hidden);
      });
    })
    .catch((error) => {
      if (!signal.aborted) fill(place, trouble(error));
    });
}

function entry(document, where, method, operation) {
  const inside = h("div", { class: "stack" });
  const element = h(
    "details",
    {
      class: "operation",
      "data-id": `${method} ${where}`,
      "data-text": `${method} ${where} ${operation.summary ?? ""} ${operation.description ?? ""}`.toLowerCase(),
      on: {
        toggle() {
          if (element.open && inside.children.length === 0) add(inside, [tryIt(document, where, method, operation)]);
        },
      },
    },
    h(
      "summary",
      {},
      chip(method.toUpperCase(), TONES[method]),
      h("code", {}, where),
      h("span", { class: "quiet" }, operation.summary ?? ""),
    ),
    inside,
  );
  return element;
}

function resolve(document, schema = {}) {
  return schema.$ref
    ? resolve(
        document,
        schema.$ref
          .split("/")
          .slice(1)
          .reduce((at, part) => at[part], document),
      )
    : schema;
}

/** A sample body. */
function sample(document, given, depth = 0) {
  const schema = resolve(document, given);
  if (depth > 4) return null;
  const one = schema.oneOf ?? schema.anyOf;
  if (one) return sample(document, one.find((each) => each.type !== "null") ?? one[0], depth + 1);
  if (schema.enum) return schema.enum[0];
  const type = [schema.type].flat().find((each) => each !== "null");
  if (type === "object" || schema.properties) {
    const required = schema.required ?? [];
    return Object.fromEntries(
      Object.entries(schema.properties ?? {})
        .filter(([key]) => required.length === 0 || required.includes(key))
        .map(([key, value]) => [key, sample(document, value, depth + 1)]),
    );
  }
  if (type === "array") return [sample(document, schema.items ?? {}, depth + 1)];
  if (type === "integer" || type === "number") return schema.minimum ?? 0;
  if (type === "boolean") return false;
  return "";
}

function parameter(document, each) {
  const schema = resolve(document, each.schema);
  const type = [schema.type].flat().find((one) => one !== "null");
  const label = [h("code", {}, each.name), each.required ? " (required)" : "", h("span", { class: "quiet" }, ` ${each.in}`)];
  if (type === "boolean") {
    const made = tick(label);
    return { each, element: made.element, value: () => (made.input.checked ? "true" : "") };
  }
  const input = schema.enum
    ? select([["", ""], ...schema.enum.map((value) => [value, value])], "")
    : h("input", {
        type: type === "integer" ? "number" : "text",
        autocomplete: "off",
        spellcheck: "false",
        required: each.required,
        min: schema.minimum,
        max: schema.maximum,
      });
  return { each, element: field(label, input, each.description), value: () => input.value.trim() };
}

function tryIt(document, where, method, operation) {
  const parameters = (operation.parameters ?? []).map((each) => parameter(document, each));
  const content = operation.requestBody?.content ?? {};
  const isForm = "multipart/form-data" in content;
  const json = content["application/json"];
  const body = json && h("textarea", { class: "code alone", rows: "6", spellcheck: "false" });
  if (body) body.value = JSON.stringify(sample(document, json.schema), null, 2);
  const file = isForm && h("input", { type: "file" });
  const isStream =
    Object.values(operation.responses).some((each) => each.content?.["text/event-stream"]) || /socket$/.test(where);
  const curl = h("pre", { class: "curl", tabindex: "0", "aria-label": "The same with curl" });
  const answer = h("div", { class: "stack" });

  const made = () => {
    const given = (kind) =>
      parameters.filter(({ each, value }) => each.in === kind && value() !== "").map(({ each, value }) => [each.name, value()]);
    const inPath = new Map(parameters.filter(({ each }) => each.in === "path").map(({ each, value }) => [each.name, value()]));
    const missing = [...inPath].find(([, value]) => value === "");
    const whole = where.replace(/\{(\w+)\}/g, (_, key) =>
      encodeURIComponent(inPath.get(key) || `{${key}}`).replace(/%7B|%7D/g, (found) => (found === "%7B" ? "{" : "}")),
    );
    return { url: whole + query(Object.fromEntries(given("query"))), headers: Object.fromEntries(given("header")), missing };
  };
  const drawCurl = () => {
    const { url, headers } = made();
    const parts = [
      "curl",
      method === "get" ? "" : `-X ${method.toUpperCase()}`,
      `-H "Authorization: Bearer $TOKEN"`,
      ...Object.entries(headers).map(([key, value]) => `-H ${quoted(`${key}: ${value}`)}`),
    ];
    if (body) parts.push("-H 'Content-Type: application/json'", `-d ${quoted(body.value)}`);
    if (isForm) parts.push("-F file=@skills.zip");
    if (isStream) parts.push("-N");
    curl.textContent = visible([...parts.filter(Boolean), quoted(location.origin + url)].join(" "));
  };
  const go = async () => {
    const { url, headers, missing } = made();
    if (missing) throw new Error(`${missing[0]} is required.`);
    let options = { headers };
    if (body) {
      try {
        options = { ...options, body: JSON.parse(body.value) };
      } catch (error) {
        throw new Error(`The body is not JSON: ${error.message}`);
      }
    }
    if (isForm) {
      if (file.files.length === 0) throw new Error("Choose a file first.");
      options.form = new FormData();
      options.form.append("file", file.files[0], "skills.zip");
    }
    const begun = performance.now();
    const got = await send(method.toUpperCase(), url, { ...options, signal: isStream ? AbortSignal.timeout(5000) : undefined });
    const text = await read(got);
    const took = Math.round(performance.now() - begun);
    fill(
      answer,
      h("p", {}, chip(String(got.status), got.ok ? "ok" : "bad"), ` ${bytes(text.length)} after ${took} ms`),
      h("pre", { class: "json", tabindex: "0", "aria-label": "Answer" }, pretty(text)),
    );
  };
  const element = form(
    { class: "stack" },
    go,
    operation.description && h("p", {}, line(operation.description)),
    parameters.length > 0 &&
      h(
        "div",
        { class: "inline-fields" },
        parameters.map((each) => each.element),
      ),
    body && field("Body", body),
    file && field("Archive", file),
    h(
      "div",
      { class: "buttons" },
      h("button", { type: "submit", class: "first" }, "Send"),
      copyButton(() => curl.textContent, "Copy curl"),
    ),
    curl,
    answer,
    h(
      "details",
      { class: "answers-of" },
      h("summary", {}, "Answers"),
      h(
        "dl",
        { class: "terms" },
        Object.entries(operation.responses).map(([status, each]) => [h("dt", {}, status), h("dd", {}, line(each.description))]),
      ),
    ),
  );
  element.addEventListener("input", drawCurl);
  drawCurl();
  return element;
}

/** Reads a response; a stream is read until its signal aborts. */
async function read(answer) {
  let text = "";
  try {
    const reader = answer.body?.pipeThrough(new TextDecoderStream()).getReader();
    for (;;) {
      const { value, done } = reader ? await reader.read() : { done: true };
      if (done || text.length > SHOWN) return text;
      text += value;
    }
  } catch (error) {
    if (error.name !== "TimeoutError") throw error;
    return `${text}… truncated after 5 seconds`;
  }
}

function pretty(text) {
  let shown = text;
  try {
    shown = JSON.stringify(JSON.parse(text), null, 2);
  } catch {
    // Not JSON: shown unchanged.
  }
  // The token is hidden, for bystanders and screenshots.
  const word = token.get();
  return visible(word ? shown.replaceAll(word, "…") : shown).slice(0, SHOWN);
}

function quoted(text) {
  return `'${text.replace(/'/g, "'\\''")}'`;
}
