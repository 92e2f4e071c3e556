// Fills a service with sample data, for tests and screenshots.

import { api, SECRET, until, upload } from "./stage.mjs";

const card = (name, description) =>
  `---\nname: ${name}\ndescription: ${description}\n---\n# ${name}\n\nRun \`python3 scripts/report.py\`.\n`;

/** Skills of two tenants, commands with every kind of end, one that runs and one that asks. */
export async function populate() {
  await upload("alice", "helper", {
    "report/SKILL.md": card(
      "report",
      "Turns a table of sales into a short report, with totals for each region and the three best months.",
    ),
    "report/scripts/report.py":
      'import csv, collections\n\ntotals = collections.Counter()\nfor row in csv.DictReader(open("data/sales.csv")):\n    totals[row["region"]] += int(row["amount"])\n\nfor region, amount in totals.most_common():\n    print(f"{region:<12} {amount:>8,}")\n',
    "report/scripts/outside.py": `for path in ["/etc/shadow", "/root/.ssh/id_ed25519", "${SECRET}"]:\n    try:\n        print(open(path).read())\n    except OSError as error:\n        print(error)\nraise SystemExit(1)\n`,
    "report/scripts/ask.py": `print("looking for last year's figures", flush=True)\nprint(open("${SECRET}").read())\n`,
    "report/scripts/slow.py":
      'import time\nfor step in range(600):\n    print(f"step {step}: {step * 37 % 101} rows checked", flush=True)\n    time.sleep(0.5)\n',
    "report/data/sales.csv": "region,amount\nnorth,1200\nsouth,3400\nwest,800\nnorth,700\n",
    "tidy/SKILL.md": card("tidy", "Sorts downloads into folders by kind and age."),
    "tidy/tidy.py": "print('nothing to tidy')\n",
  });
  await upload("bob", "crawler", {
    "fetch/SKILL.md": card("fetch", "Fetches a page and keeps its text."),
    "fetch/fetch.py": "import socket\nsocket.create_connection(('example.org', 443), timeout=2)\n",
  });
  await api("PUT", "/v1/tenants/alice/policy", { policy: 'version = 1\n\n[limits]\nwall = "20s"\nmemory = "256MiB"\n' });
  await api("POST", "/v1/tokens", { userId: "alice", scopes: ["skills:read", "execute"], label: "alice’s laptop" });
  await api("POST", "/v1/tokens", {
    userId: "bob",
    scopes: ["skills:read", "skills:write", "execute", "asks"],
    label: "build server",
    expiresIn: 604800,
  });
  const run = (where, command, more = {}, way = "") => api("POST", `/v1/skills/${where}/execute${way}`, { command, ...more });
  for (let round = 0; round < 4; round += 1) {
    await Promise.all([
      run("alice/helper/report", "python3 scripts/report.py"),
      run("alice/helper/tidy", "python3 tidy.py"),
      run("bob/crawler/fetch", "python3 -c 'print(sum(range(3000000)))'"),
    ]);
  }
  await run("bob/crawler/fetch", "python3 fetch.py");
  await run("alice/helper/report", "ls -l; cat /etc/passwd");
  await run("alice/helper/report", "python3 -c 'x = bytearray(600 << 20)'");
  await run("alice/helper/report", "python3 -c 'while True: pass'", { timeoutMs: 700 });
  await run("alice/helper/report", "python3 scripts/outside.py");
  const known = (await api("GET", "/v1/executions?userId=alice")).executions;
  const blocked = known.find((each) => each.command.startsWith("python3 scripts/outside")).id;
  await api("PUT", "/v1/tenants/alice/policy", { policy: 'version = 1\n\n[limits]\nmemory = "256MiB"\n' });
  const { id: sandbox } = await api("POST", "/v1/sandboxes", { userId: "bob", ttlSeconds: 900 });
  await api("POST", `/v1/sandboxes/${sandbox}/exec`, { command: "cat /etc/shadow" });
  const { id: running } = await run("alice/helper/report", "python3 scripts/slow.py", {}, "?async=true");
  await question();
  return { blocked, running, sandbox };
}

/** A command that asks, and waits for two minutes. */
export async function question() {
  const { id } = await api("POST", "/v1/skills/alice/helper/report/execute?async=true", {
    command: "python3 scripts/ask.py",
    ask: true,
  });
  await until("a question", async () => (await api("GET", "/v1/asks")).asks.some((each) => each.about === id));
}
