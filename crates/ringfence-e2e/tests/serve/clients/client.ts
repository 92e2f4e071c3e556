// The example of docs/clients.md in full: upload a skill, run a command in it, read the result.
import { readFileSync } from "node:fs";
import createClient from "openapi-fetch";
import type { paths } from "./service.js";

const client = createClient<paths>({
  baseUrl: process.env.RINGFENCE_URL!,
  headers: { Authorization: `Bearer ${process.env.RINGFENCE_TOKEN}` },
});

const owner = { userId: "alice", agentId: "helper" };
const uploaded = await client.POST("/v1/skills/{userId}/{agentId}/upload", {
  params: { path: owner },
  body: { file: "" },
  bodySerializer() {
    const form = new FormData();
    form.append("file", new Blob([readFileSync(process.env.ARCHIVE!)]), "skills.zip");
    return form;
  },
});
if (uploaded.error) throw new Error(`${uploaded.error.code}: ${uploaded.error.message}`);
const skill = uploaded.data.skills[0];

const ran = await client.POST("/v1/skills/{userId}/{agentId}/{skillId}/execute", {
  params: { path: { ...owner, skillId: skill.skillId } },
  body: { command: "python3 run.py; cat /etc/shadow" },
});
if (ran.error) throw new Error(`${ran.error.code}: ${ran.error.message}`);
if (!("exitCode" in ran.data)) throw new Error("only streams of events have no result at once");
const result = ran.data;

const absent = await client.GET("/v1/skills/{userId}/{agentId}/{skillId}/files", {
  params: { path: { ...owner, skillId: "nothing" } },
});
console.log(
  JSON.stringify({
    skill: skill.name,
    stdout: result.stdout,
    exitCode: result.exitCode,
    blocked: result.blocked,
    denied: result.denials.map((denial) => denial.target),
    absent: absent.error?.code,
  }),
);
