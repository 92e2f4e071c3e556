// Uploads archives, by button or drag and drop.

import { fill, h } from "../dom.js";
import { bytes, line } from "../format.js";
import { ask, path } from "../remote.js";
import { trouble } from "../widgets.js";

/** The upload area; `afterwards` is called after an upload. */
export function uploader(user, agent, afterwards) {
  const status = h("div", { class: "brought", role: "status" });
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
    h("p", {}, "Drop a ZIP archive here; each top-level directory is a skill."),
    button,
    pick,
  );
  async function bring(file) {
    fill(status, h("p", { class: "quiet" }, `${line(file.name)}, ${bytes(file.size)}: uploading …`));
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
        status,
        h(
          "section",
          { class: "callout ok" },
          h("p", {}, `Uploaded: ${skills.map((each) => `${each.skillId}${each.replaced ? " (replaced)" : ""}`).join(", ")}`),
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
      fill(status, trouble(error));
    } finally {
      button.disabled = false;
    }
  }
  return { element: h("div", {}, zone, status) };
}
