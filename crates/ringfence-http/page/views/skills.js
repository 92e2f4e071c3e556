// Skills of an agent: upload, read, edit, run and remove.

import { arrows, fill, h, put, say } from "../dom.js";
import { bytes, line, many, number, visible, when } from "../format.js";
import { live } from "../live.js";
import { ask, get, path } from "../remote.js";
import { chip, empty, field, form, name, sure, tabs, trouble } from "../widgets.js";
import { files } from "./files.js";
import { runner } from "./run.js";
import { uploader } from "./upload.js";

const last = { user: "", agent: "" };

export function show(main, [user, agent, skill], signal) {
  if (user) Object.assign(last, { user, agent: agent ?? "" });
  const own = live.me.userId;
  const users = h("datalist", { id: "skill-users" });
  const agents = h("datalist", { id: "skill-agents" });
  const inputs = {
    user: h("input", {
      type: "text",
      value: own ?? last.user,
      readOnly: own !== null,
      list: "skill-users",
      autocomplete: "off",
      spellcheck: "false",
      required: true,
    }),
    agent: h("input", {
      type: "text",
      value: last.agent,
      list: "skill-agents",
      autocomplete: "off",
      spellcheck: "false",
      required: true,
    }),
  };
  const go = () => {
    const [one, other] = [inputs.user.value.trim(), inputs.agent.value.trim()];
    if (!one || !other) throw new Error("Enter a tenant and an agent.");
    location.hash = path`#/skills/${one}/${other}`;
  };
  const chooser = form(
    { class: "filters", "aria-label": "Owner of the skills" },
    go,
    field("Tenant", inputs.user),
    field("Agent", inputs.agent),
    h("button", { type: "submit" }, "Open"),
    users,
    agents,
  );
  const place = h("div");
  const back =
    skill && h("p", { class: "back" }, h("a", { href: path`#/skills/${user}/${agent}` }, ["← ", name(`${user}/${agent}`)]));
  put(
    main,
    back,
    h(
      "div",
      { class: "title" },
      h("h1", {}, skill ? ["Skill ", name(skill)] : "Skills"),
      skill && h("span", { class: "space" }),
      skill && h("span", { class: "deeds" }),
    ),
    !skill && chooser,
    place,
  );

  async function known() {
    const { tenants } = await get("/v1/tenants", { signal });
    fill(
      users,
      tenants.map((each) => h("option", { value: each.userId })),
    );
    const offer = () =>
      fill(
        agents,
        (tenants.find((each) => each.userId === inputs.user.value)?.agents ?? []).map((value) => h("option", { value })),
      );
    inputs.user.addEventListener("input", offer);
    offer();
    return tenants;
  }
  const fail = (error) => {
    if (!signal.aborted) fill(place, trouble(error));
  };
  const tenants = known();
  if (user && agent && skill) {
    tenants.catch(() => {});
    one(place, { user, agent, skill }, signal).catch(fail);
  } else if (user && agent) {
    tenants.catch(() => {});
    agentSkills(place, user, agent, signal).catch(fail);
  } else {
    tenants.then((all) => browse(place, all), fail);
  }
}

/** Every tenant and its agents. */
function browse(place, tenants) {
  const shown = tenants.filter((each) => each.agents.length > 0);
  if (shown.length === 0) {
    fill(
      place,
      empty(
        "No skills yet.",
        h("p", { class: "quiet" }, "Enter a tenant and an agent above, and upload an archive there."),
      ),
    );
    return;
  }
  fill(
    place,
    arrows(
      h(
        "div",
        { class: "cards" },
        shown.map((each) =>
          h(
            "section",
            { class: "card" },
            h("h2", {}, name(each.userId)),
            h("p", { class: "quiet" }, `${many(each.skills, "skill")}, ${bytes(each.bytes)}`),
            h(
              "ul",
              { class: "links" },
              each.agents.map((agent) =>
                h("li", {}, h("a", { class: "row", href: path`#/skills/${each.userId}/${agent}` }, name(agent))),
              ),
            ),
          ),
        ),
      ),
      "a.row",
    ),
  );
}

/** The skills of one agent, and the upload area. */
async function agentSkills(place, user, agent, signal) {
  const { skills } = await get(path`/v1/skills/${user}/${agent}/list`, { signal });
  const bring = live.may("skills:write") ? uploader(user, agent, () => agentSkills(place, user, agent, signal)) : null;
  const cards = skills.map((each) =>
    h(
      "a",
      { class: "card row", href: path`#/skills/${user}/${agent}/${each.skillId}` },
      h("h2", {}, name(each.name)),
      each.description && h("p", {}, line(each.description)),
      h(
        "p",
        { class: "quiet" },
        each.name !== each.skillId && [name(each.skillId, "mono"), " · "],
        `${many(each.files, "file")}, ${bytes(each.bytes)}`,
        each.warnings.length > 0 && [" ", chip(many(each.warnings.length, "warning"), "warn")],
      ),
    ),
  );
  const before = place.querySelector(".brought");
  fill(
    place,
    skills.length === 0
      ? empty(["No skills of ", name(`${user}/${agent}`), "."])
      : arrows(h("div", { class: "cards" }, cards), "a.row"),
    bring?.element,
  );
  if (before && bring) bring.element.append(before);
}

/** One skill. */
async function one(place, id, signal) {
  const { skills } = await get(path`/v1/skills/${id.user}/${id.agent}/list`, { signal });
  const info = skills.find((each) => each.skillId === id.skill);
  if (!info) {
    fill(
      place,
      empty("No such skill.", h("p", {}, h("a", { href: path`#/skills/${id.user}/${id.agent}` }, "List the skills"))),
    );
    return;
  }
  const below = h("div", { class: "below" });
  const remove = h(
    "button",
    {
      type: "button",
      class: "danger",
      on: {
        async click() {
          if (
            !(await sure(
              `Remove ${id.skill}?`,
              "All its files are deleted permanently. Running commands continue to their end.",
              "Remove it",
            ))
          )
            return;
          try {
            await ask("DELETE", path`/v1/skills/${id.user}/${id.agent}/${id.skill}`);
            say(`${id.skill} was removed`);
            location.hash = path`#/skills/${id.user}/${id.agent}`;
          } catch (error) {
            fill(below, trouble(error));
          }
        },
      },
    },
    "Remove",
  );
  const panels = [
    ["Files", h("div")],
    ["Run", h("div")],
    ["About", about(info)],
  ].filter(([title]) => title !== "Run" || live.may("execute"));
  const { list } = tabs("Skill", panels, 0);
  fill(
    place,
    info.description && h("p", { class: "lead" }, line(info.description)),
    below,
    list,
    panels.map(([, panel]) => panel),
  );
  if (live.may("skills:write")) fill(document.querySelector("main .deeds"), remove);
  const run = panels.find(([title]) => title === "Run");
  if (run) fill(run[1], runner(id, signal));
  await files(panels[0][1], id, signal);
}

function about(info) {
  const needs = info.needs ?? {};
  const rows = [
    ["Directory", name(info.skillId, "mono")],
    ["Name", name(info.name)],
    info.license && ["Licence", name(info.license)],
    info.compatibility && ["Compatibility", name(info.compatibility)],
    ["Tools", info.allowedTools.length > 0 ? info.allowedTools.map((each) => chip(line(each))) : "none declared"],
    [
      "Hosts",
      needs.hosts ? (needs.hosts.length > 0 ? needs.hosts.map((each) => chip(line(each))) : "none") : "what the policy allows",
    ],
    [
      "Writes",
      needs.writes
        ? needs.writes.length > 0
          ? needs.writes.map((each) => chip(line(each)))
          : "nothing"
        : "what the policy allows",
    ],
    needs.limits?.length > 0 && ["Limits", needs.limits.map(([limit, value]) => chip(`${limit} ${value}`))],
    ["Files", `${number(info.files)}, ${bytes(info.bytes)}`],
    info.modifiedMs && ["Changed", when(info.modifiedMs)],
    Object.keys(info.metadata).length > 0 && [
      "Metadata",
      h("pre", { class: "json", tabindex: "0", "aria-label": "Metadata" }, visible(JSON.stringify(info.metadata, null, 2))),
    ],
  ].filter(Boolean);
  const warnings =
    info.warnings.length > 0 &&
    h(
      "section",
      { class: "callout warn" },
      h("h2", {}, "Deviations from the skill format"),
      h(
        "ul",
        {},
        info.warnings.map((each) => h("li", {}, each.line ? `line ${each.line}: ` : "", line(each.what))),
      ),
    );
  return h(
    "div",
    { class: "stack" },
    h(
      "dl",
      { class: "facts tall" },
      rows.map(([term, value]) => h("div", {}, h("dt", {}, term), h("dd", {}, value))),
    ),
    warnings,
  );
}
