// Time series, computed from the known executions.

/** Time ranges: the length of an interval, and their number. */
export const SPANS = {
  5: { title: "5 minutes", step: 10_000, count: 30 },
  30: { title: "30 minutes", step: 60_000, count: 30 },
  360: { title: "6 hours", step: 720_000, count: 30 },
};

export function isOver({ state }) {
  return state !== "waiting" && state !== "running";
}

/** The values of all charts, for `span` up to `now`. */
export function figures(executions, denials, span, now) {
  const { step, count } = span;
  const start = now - step * count;
  const place = (ms) => (ms >= start && ms <= now ? Math.min(count - 1, Math.floor((ms - start) / step)) : -1);
  const empty = () => Array.from({ length: count }, () => []);
  const took = empty();
  const memory = empty();
  const cpu = empty();
  const begun = Array(count).fill(0);
  const refused = Array(count).fill(0);
  const breaches = new Map();
  const put = (lists, at, value) => {
    if (at >= 0 && Number.isFinite(value)) lists[at].push(value);
  };
  for (const each of executions) {
    const at = place(each.endedMs ?? 0);
    const beginning = place(each.createdMs);
    if (beginning >= 0) begun[beginning] += 1;
    if (!each.result) continue;
    put(took, at, each.result.durationMs);
    put(memory, at, each.result.usage ? each.result.usage.maxRssKb * 1024 : NaN);
    put(cpu, at, each.result.usage ? (each.result.usage.userUs + each.result.usage.systemUs) / 1000 : NaN);
    if (at >= 0) for (const { limit } of each.result.breaches ?? []) breaches.set(limit, (breaches.get(limit) ?? 0) + 1);
  }
  for (const each of denials) {
    const at = place(each.timeMs);
    if (at >= 0) refused[at] += each.count ?? 1;
  }
  const running = peaks(executions, span, start);
  const all = took.flat();
  return {
    start,
    running,
    begun,
    refused,
    p50: took.map((list) => quantile(list, 0.5)),
    p95: took.map((list) => quantile(list, 0.95)),
    memory: memory.map(most),
    cpu: cpu.map(most),
    whole: {
      p50: quantile(all, 0.5),
      p95: quantile(all, 0.95),
      memory: most(memory.flat()),
      cpu: most(cpu.flat()),
      ended: all.length,
    },
    breaches: [...breaches],
  };
}

/** The peak number of concurrent executions in each interval. */
function peaks(executions, { step, count }, start) {
  const edges = executions
    .filter((each) => each.startedMs)
    .flatMap((each) => [
      [each.startedMs, 1],
      [each.endedMs ?? Infinity, -1],
    ]);
  edges.sort(([one, up], [other, down]) => one - other || up - down);
  const found = Array(count).fill(0);
  let now = 0;
  let at = 0;
  for (const [time, change] of edges) {
    const place = Math.min(count - 1, Math.floor((time - start) / step));
    for (; at < place; at += 1) {
      found[at] = Math.max(found[at], now);
      found[at + 1] = now;
    }
    now += change;
    if (place >= 0) found[at] = Math.max(found[at], now);
  }
  return found;
}

function most(list) {
  return list.length === 0 ? null : Math.max(...list);
}

function quantile(list, part) {
  if (list.length === 0) return null;
  const sorted = list.toSorted((one, other) => one - other);
  return sorted[Math.min(sorted.length - 1, Math.ceil(part * sorted.length) - 1)];
}
