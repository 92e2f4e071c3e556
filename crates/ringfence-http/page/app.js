// The entry point: sign-in, routing between views, and the frame around every view.

import { call, fill, h, say } from "./dom.js";
import { dock } from "./dock.js";
import { live, watch } from "./live.js";
import { get, onUnknown, token } from "./remote.js";
import { keys, showKeys } from "./shortcuts.js";
import { signIn } from "./sign-in.js";
import { closeDialogs } from "./widgets.js";
import * as asks from "./views/asks.js";
import * as audit from "./views/audit.js";
import * as denials from "./views/denials.js";
import * as executions from "./views/executions.js";
import * as overview from "./views/overview.js";
import * as reference from "./views/reference.js";
import * as sandboxes from "./views/sandboxes.js";
import * as skills from "./views/skills.js";
import * as tenants from "./views/tenants.js";

/** Every view: its address, title, shortcut key and required token scope. */
const VIEWS = [
  { at: "overview", title: "Overview", key: "o", scope: "execute", view: overview },
  { at: "executions", title: "Executions", key: "e", scope: "execute", view: executions },
  { at: "denials", title: "Denials", key: "d", scope: "execute", view: denials },
  { at: "asks", title: "Asks", key: "a", scope: "asks", view: asks },
  { at: "audit", title: "Audit", key: "l", scope: "audit", view: audit },
  { at: "sandboxes", title: "Sandboxes", key: "b", scope: "sandboxes", view: sandboxes },
  { at: "skills", title: "Skills", key: "s", scope: "skills:read", view: skills },
  { at: "tenants", title: "Tokens & tenants", key: "t", scope: "admin", view: tenants },
  { at: "api", title: "API", key: "r", scope: null, view: reference },
];

const app = document.getElementById("app");
const main = h("main", { id: "main", tabindex: "-1" });
let leaving = new AbortController();

function seen() {
  return VIEWS.filter(({ scope }) => scope === null || live.may(scope));
}

function shell(me) {
  const state = h("span", { class: "state", role: "status" });
  const badge = h("a", { class: "badge", href: "#/asks" });
  const links = seen().map(({ at, title, key }) =>
    h(
      "a",
      { href: `#/${at}`, "data-view": at },
      h("span", {}, title),
      h("span", { class: "count" }),
      h("kbd", { "aria-hidden": "true" }, `g ${key}`),
    ),
  );
  const nav = h("nav", { id: "nav", "aria-label": "Views" }, links);
  const menu = h(
    "button",
    {
      type: "button",
      class: "menu quietly",
      "aria-controls": "nav",
      "aria-expanded": "false",
      on: { click: () => unfold(nav.classList.contains("open")) },
    },
    "Menu",
  );
  const unfold = (isOpen) => {
    nav.classList.toggle("open", !isOpen);
    menu.setAttribute("aria-expanded", String(!isOpen));
  };
  nav.addEventListener("click", () => unfold(true));
  const who = h(
    "span",
    { class: "who" },
    h("span", { class: "unseen" }, "Signed in with token "),
    me.token,
    me.userId ? ` · ${me.userId}` : " · all tenants",
  );
  const header = h(
    "header",
    {},
    menu,
    brand(),
    state,
    h("span", { class: "space" }),
    badge,
    who,
    themeButton(),
    h(
      "button",
      { type: "button", class: "quietly wide", "aria-label": "Keyboard shortcuts", on: { click: () => showKeys(seen()) } },
      "?",
    ),
    h("button", { type: "button", class: "quietly", on: { click: () => leave("") } }, "Sign out"),
  );
  fill(app, header, h("div", { class: "body" }, nav, main), dock(leaving.signal));
  const words = { connecting: "connecting", live: "live", asking: "polling every 3 s", waiting: "reconnecting" };
  watch(leaving.signal, ["connection", "asks", "executions"], () => {
    state.textContent = words[live.connection];
    state.dataset.state = live.connection;
    badge.hidden = live.asks.length === 0;
    badge.textContent = live.asks.length === 1 ? "1 ask" : `${live.asks.length} asks`;
    document.title = `${live.asks.length > 0 ? `(${live.asks.length}) ` : ""}${main.querySelector("h1")?.textContent ?? "ringfence"} · ringfence`;
    const running = [...live.executions.values()].filter(({ state: each }) => each === "running" || each === "waiting").length;
    for (const link of links) {
      const count = { executions: running, asks: live.asks.length }[link.dataset.view] ?? 0;
      const place = link.querySelector(".count");
      place.textContent = count || "";
      place.classList.toggle("urgent", link.dataset.view === "asks" && count > 0);
    }
  });
}

function brand() {
  return h(
    "a",
    { class: "brand", href: "#/overview" },
    h("img", { src: "/page/icon.svg", alt: "", width: "22", height: "22" }),
    "ringfence",
  );
}

function themeButton() {
  const order = ["system", "light", "dark"];
  const now = () => document.documentElement.dataset.theme ?? "system";
  const button = h("button", {
    type: "button",
    class: "quietly theme",
    on: {
      click() {
        const next = order[(order.indexOf(now()) + 1) % order.length];
        if (next === "system") delete document.documentElement.dataset.theme;
        else document.documentElement.dataset.theme = next;
        try {
          localStorage.setItem("ringfence-theme", next);
        } catch {
          // Without storage the theme lasts for this page only.
        }
        show();
        say(`Theme: ${next}`);
      },
    },
  });
  const show = () => {
    button.textContent = { system: "◐", light: "☀", dark: "☾" }[now()];
    button.setAttribute("aria-label", `Theme: ${now()}`);
    button.title = `Theme: ${now()}`;
  };
  show();
  return button;
}

/** Shows the view that the address names. */
let showing = new AbortController();
function route() {
  if (!live.me) return;
  const [at, ...rest] = location.hash
    .replace(/^#\/?/, "")
    .split("/")
    .map((part) => {
      try {
        return decodeURIComponent(part);
      } catch {
        return part;
      }
    });
  const found = seen().find((each) => each.at === at) ?? seen()[0];
  // A dialog belongs to the view that was left.
  closeDialogs();
  showing.abort();
  showing = new AbortController();
  for (const link of document.querySelectorAll("nav a")) {
    if (link.dataset.view === found.at) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  main.className = `view-${found.at}`;
  fill(main);
  found.view.show(main, rest, showing.signal);
  const title = main.querySelector("h1");
  document.title = `${live.asks.length > 0 ? `(${live.asks.length}) ` : ""}${title?.textContent ?? found.title} · ringfence`;
  if (title && wasHere) {
    title.tabIndex = -1;
    title.focus({ preventScroll: true });
    scrollTo(0, 0);
  }
  wasHere = true;
}
let wasHere = false;

function leave(why) {
  closeDialogs();
  showing.abort();
  leaving.abort();
  live.stop();
  token.drop();
  ask(why);
}

function ask(why) {
  // After a sign-in the focus moves to the view; after a plain page load it stays at the top.
  wasHere = true;
  fill(app, signIn(why, enter, themeButton()));
  document.title = "Sign in · ringfence";
  app.querySelector("input")?.focus();
}

function enter(me) {
  leaving = new AbortController();
  live.start(me);
  shell(me);
  route();
  call("");
}

async function begin() {
  if (!token.get()) return ask("");
  try {
    enter(await get("/v1/me"));
  } catch (error) {
    if (error.status === 401) token.drop();
    ask(error.status === 401 ? "This token is no longer valid." : error.message);
  }
}

onUnknown(() => {
  if (live.me) leave("This token is no longer valid. Sign in again.");
});
addEventListener("hashchange", route);
document.querySelector(".skip").addEventListener("click", (event) => {
  event.preventDefault();
  (document.getElementById("main") ?? app.querySelector("input"))?.focus();
});
keys(() => (live.me ? seen() : []));
begin();
