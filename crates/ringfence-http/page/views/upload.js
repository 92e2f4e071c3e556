// Archives, brought by button or dropped.

import { fill, h } from "../dom.js";
import { bytes, line } from "../format.js";
import { ask, path } from "../remote.js";
import { trouble } from "../widgets.js";

/** The way in for an archive; `afterwards` is called when it was taken. */
export function uploader(user, agent, afterwards) {
  const told = h("div", { class: "brought", role: "status" });
  const pick = h("input", {
    type: "file",
    accept: ".zip,application/zip",
    "aria-label": "Archive",
    class: "unseen",
    tabindex: "-1",
    on: {
      change() {
        if (pick.files.length > 0) bring(pick.files[0]);
        pick.value = "";
      },
    },
  });
  const button = h("button", { type: "button", class: "first", on: { click: () => pick.click() } }, "Choose an archive");
  const zone = h(
    "section",
    {
      class: "zone",
      "aria-label": "Upload",
      on: {
        dragover(event) {
          event.preventDefault();
          zone.classList.add("over");
        },
        dragleave: () => zone.classList.remove("over"),
        drop(event) {
          event.preventDefault();
          zone.classList.remove("over");
          if (event.dataTransfer.files.length > 0) bring(event.dataTransfer.files[0]);
        },
      },
    },
    h("p", {}, "Drop a ZIP here, in which every directory at the top is a skill."),
    button,
    pick,
  );
  async function bring(file) {
    fill(told, h("p", { class: "quiet" }, `${line(file.name)}, ${bytes(file.size)}, is sent …`));
    button.disabled = true;
    try {
      const body = new FormData();
      body.append("file", file, "skills.zip");
      const { skills, warnings } = await ask("POST", path`/v1/skills/${user}/${agent}/upload`, { form: body });
      const all = [
        ...warnings,
        ...skills.flatMap((each) => each.warnings.map((warning) => ({ ...warning, what: `${each.skillId}: ${warning.what}` }))),
      ];
      fill(
        told,
        h(
          "section",
          { class: "callout ok" },
          h("p", {}, `Taken in: ${skills.map((each) => `${each.skillId}${each.replaced ? " (replaced)" : ""}`).join(", ")}`),
          all.length > 0 &&
            h(
              "ul",
              {},
              all.map((each) => h("li", {}, line(each.what))),
            ),
        ),
      );
      await afterwards();
    } catch (error) {
      fill(told, trouble(error));
    } finally {
      button.disabled = false;
    }
  }
  return { element: h("div", {}, zone, told) };
}
