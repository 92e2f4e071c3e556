// The live state of the service: from the event stream if the token permits it, otherwise by
// polling.

import { call, say } from "./dom.js";
import { line, many } from "./format.js";
import { get, listen } from "./remote.js";

/** The number of denials shown; older ones are in the audit log. */
const DENIALS = 500;
/** Executions fetched after a change, and in the regular refresh. */
const NEWEST = 100;
const ALL = 1000;
const SLOW = 15_000;
const QUICK = 3_000;

class Live extends EventTarget {
  me = null;
  executions = new Map();
  denials = [];
  asks = [];
  /** `null` if the service offers none. */
  sandboxes = null;
  /** `connecting`, `live`, `asking` (polling) or `waiting` to retry. */
  connection = "connecting";
  #known = new Set();
  #stop = null;
  #due = null;
  #offers = null;
  #announced = { at: 0, since: 0, timer: null };

  start(me) {
    this.stop();
    this.me = me;
    this.#stop = new AbortController();
    const { signal } = this.#stop;
    this.#follow(signal);
    this.#look(signal);
  }

  stop() {
    this.#stop?.abort();
    clearTimeout(this.#due);
    this.#due = null;
    this.executions.clear();
    this.#known.clear();
    [this.denials, this.asks, this.sandboxes, this.me] = [[], [], null, null];
  }

  may(scope) {
    return this.me?.scopes.includes(scope) ?? false;
  }

  #changed(what) {
    this.dispatchEvent(new CustomEvent("change", { detail: what }));
  }

  #stands(connection) {
    if (this.connection === connection) return;
    this.connection = connection;
    this.#changed("connection");
  }

  /** Follows the event stream while the user is signed in. */
  async #follow(signal) {
    if (!this.may("audit")) return this.#stands("asking");
    let tries = 0;
    while (!signal.aborted) {
      try {
        const opened = () => {
          tries = 0;
          this.#stands("live");
          this.soon();
        };
        await listen("GET", "/v1/events", { signal, opened }, (kind, event) => this.#heard(kind, event));
      } catch (error) {
        if (signal.aborted || error.status === 401) return;
      }
      this.#stands("waiting");
      tries += 1;
      // Jitter, so that not all pages reconnect at once.
      const pause = Math.min(30_000, 500 * 2 ** Math.min(tries, 6)) * (0.5 + Math.random() / 2);
      await new Promise((done) => {
        setTimeout(done, pause);
      });
    }
  }

  #heard(kind, event) {
    if (kind === "denial") this.#denied(event.user, event.about, [event.about], true);
    if (kind === "ask") this.#asked({ ...event.about });
    if (kind === "ask-answered") this.#asksAre(this.asks.filter((each) => each.id !== event.about.id));
    if (kind === "skills") this.dispatchEvent(new CustomEvent("skills", { detail: event }));
    if (kind.startsWith("execution-")) this.#begins(kind, event);
    this.soon();
  }

  /** Applies an event about an execution until the next refresh. */
  #begins(kind, { user, about, timeMs }) {
    const known = this.executions.get(about.id) ?? { createdMs: timeMs, startedMs: timeMs, result: null, error: null };
    const state = kind === "execution-begun" ? "running" : about.state;
    this.executions.set(about.id, {
      ...known,
      ...about,
      userId: user,
      state,
      endedMs: kind === "execution-begun" ? null : timeMs,
    });
    this.#changed("executions");
  }

  /** Schedules one refresh. */
  soon() {
    if (this.#due !== null || !this.#stop) return;
    this.#due = setTimeout(() => {
      this.#due = null;
      this.#gather(this.#stop.signal, NEWEST);
    }, 400);
  }

  async #look(signal) {
    while (!signal.aborted) {
      await this.#gather(signal, ALL);
      const pause = this.connection === "asking" || this.asks.length > 0 ? QUICK : SLOW;
      await new Promise((done) => {
        setTimeout(done, pause);
      });
    }
  }

  async #gather(signal, limit) {
    const parts = [];
    if (this.may("execute"))
      parts.push(
        get(`/v1/executions?limit=${limit}`, { signal }).then(({ executions }) => this.#executionsAre(executions, limit)),
      );
    if (this.may("asks")) parts.push(get("/v1/asks", { signal }).then(({ asks }) => this.#asksAre(asks)));
    if (this.may("sandboxes") && (await this.#hasSandboxes(signal)))
      parts.push(get("/v1/sandboxes", { signal }).then(({ sandboxes }) => this.#sandboxesAre(sandboxes)));
    // The views report errors; the next refresh retries.
    await Promise.allSettled(parts);
  }

  #executionsAre(list, limit) {
    if (limit === ALL) this.executions.clear();
    for (const each of list) this.executions.set(each.id, each);
    for (const each of list.toReversed()) {
      if (each.result?.denials?.length) this.#denied(each.userId, { execution: each.id }, each.result.denials, false);
    }
    this.#changed("executions");
  }

  /** True if the service offers sandboxes. */
  async #hasSandboxes(signal) {
    this.#offers ??= get("/openapi.json", { signal }).then(
      ({ paths }) => "/v1/sandboxes" in paths,
      () => {
        this.#offers = null;
      },
    );
    return this.#offers;
  }

  #sandboxesAre(list) {
    this.sandboxes = list;
    this.#changed("sandboxes");
  }

  /** Adds the denials of an execution or a sandbox. */
  #denied(user, { execution, sandbox }, list, isNew) {
    for (const each of list) {
      const key = JSON.stringify([execution ?? sandbox, each.operation, each.target, each.program, each.rule]);
      if (this.#known.has(key)) continue;
      this.#known.add(key);
      this.denials.push({ ...each, key, user, execution, sandbox });
      if (isNew) this.#announce(user, each);
    }
    this.denials.sort((one, other) => other.timeMs - one.timeMs);
    this.denials.length = Math.min(this.denials.length, DENIALS);
    if (this.#known.size > 20 * DENIALS) this.#known = new Set(this.denials.map((each) => each.key));
    this.#changed("denials");
  }

  /** Announces many denials as a number. */
  #announce(user, denial) {
    const announced = this.#announced;
    announced.since += 1;
    const tell = () => {
      const text =
        announced.since === 1
          ? `Denied: ${denial.operation} ${line(denial.target)}, for ${user}`
          : `${many(announced.since, "denial")}, the last for ${user}`;
      Object.assign(announced, { at: Date.now(), since: 0, timer: null });
      say(text);
    };
    if (Date.now() - announced.at > 3000 && !announced.timer) tell();
    else announced.timer ??= setTimeout(tell, 3000);
  }

  #asked(question) {
    if (!this.may("asks") || this.asks.some((each) => each.id === question.id)) return;
    this.#asksAre([...this.asks, question]);
  }

  #asksAre(list) {
    const now = Date.now();
    const before = new Map(this.asks.map((each) => [each.id, each]));
    const fresh = list.filter((each) => !before.has(each.id));
    if (fresh.length === 0 && list.length === this.asks.length) return;
    this.asks = list.map((each) => ({ ...each, seen: before.get(each.id)?.seen ?? now }));
    if (fresh.length > 0)
      call(`Question from ${fresh[0].userId}: ${line(fresh[0].reason)}. ${many(list.length, "question")} waiting.`);
    this.#changed("asks");
  }

  /** Removes a question that was answered here. */
  answered(id) {
    this.#asksAre(this.asks.filter((each) => each.id !== id));
  }
}

export const live = new Live();

/** Calls `draw` now and whenever one of `kinds` has changed, at most a few times a second, until the signal. */
export function watch(signal, kinds, draw) {
  let due = null;
  const hears = (event) => {
    if (!kinds.includes(event.detail)) return;
    due ??= setTimeout(() => {
      due = null;
      if (!signal.aborted) draw();
    }, 150);
  };
  live.addEventListener("change", hears, { signal });
  draw();
}
