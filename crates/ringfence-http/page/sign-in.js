// The sign-in form.

import { h } from "./dom.js";
import { get, token } from "./remote.js";
import { field, form } from "./widgets.js";

export function signIn(why, enter, theme) {
  const word = h("input", { type: "password", autocomplete: "off", required: true, spellcheck: "false", name: "token" });
  const shown = h(
    "button",
    {
      type: "button",
      class: "small",
      "aria-pressed": "false",
      on: {
        click() {
          const isShown = word.type === "text";
          word.type = isShown ? "password" : "text";
          shown.setAttribute("aria-pressed", String(!isShown));
        },
      },
    },
    "Show",
  );
  const deed = async () => {
    const said = word.value.trim();
    if (!/^[\x21-\x7e]+$/.test(said)) {
      word.focus();
      throw new Error(said ? "A token has no spaces and only ASCII characters." : "Type a token first.");
    }
    const me = await get("/v1/me", { word: said }).catch((error) => {
      word.select();
      throw error;
    });
    token.set(said);
    enter(me);
  };
  const hint = "It is stored in this tab only, until the tab is closed.";
  return h(
    "main",
    { id: "main", class: "sign-in", tabindex: "-1" },
    h(
      "div",
      { class: "card" },
      h("h1", {}, h("img", { src: "/page/icon.svg", alt: "", width: "28", height: "28" }), "ringfence"),
      why && h("p", { class: "notice", role: "alert" }, why),
      form(
        { class: "stack" },
        deed,
        h("div", { class: "with-button" }, field("Token", word, hint), shown),
        h("button", { type: "submit", class: "first" }, "Sign in"),
      ),
      h(
        "p",
        { class: "quiet" },
        "The administrator’s token was printed at the first start of the service, or is set in RINGFENCE_ADMIN_TOKEN.",
      ),
    ),
    h("div", { class: "corner" }, theme),
  );
}
