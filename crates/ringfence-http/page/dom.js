// Creates elements. Names, output and messages are untrusted: they become text
// nodes and attributes, and nothing here or elsewhere parses HTML.

const PROPERTIES = new Set([
  "value",
  "checked",
  "disabled",
  "selected",
  "hidden",
  "readOnly",
  "required",
  "open",
  "indeterminate",
]);
const SVG = "http://www.w3.org/2000/svg";

/** An element with attributes and children; `on` holds listeners. */
export function h(tag, attributes = {}, ...children) {
  return dressed(document.createElement(tag), attributes, children);
}

/** The same for SVG. */
export function s(tag, attributes = {}, ...children) {
  return dressed(document.createElementNS(SVG, tag), attributes, children);
}

function dressed(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === undefined || value === null || value === false) continue;
    if (name === "on") {
      for (const [event, hears] of Object.entries(value)) element.addEventListener(event, hears);
    } else if (name === "href") {
      // Only within the page: a link made of untrusted text cannot lead elsewhere.
      if (!/^(#|\/(?!\/))/.test(value)) throw new Error("a link must stay within the page");
      element.setAttribute(name, value);
    } else if (PROPERTIES.has(name)) {
      element[name] = value;
    } else if (/^on/i.test(name) || name === "style" || name === "srcdoc") {
      throw new Error(`no attribute ${name}`);
    } else {
      element.setAttribute(name, value === true ? "" : String(value));
    }
  }
  add(element, children);
  return element;
}

/** Adds children to an element; values other than nodes become text. */
export function add(element, children) {
  for (const child of children.flat(Infinity)) {
    if (child === undefined || child === null || child === false) continue;
    element.append(child instanceof Node ? child : document.createTextNode(String(child)));
  }
  return element;
}

/** Adds several children. */
export function put(element, ...children) {
  return add(element, children);
}

/** Replaces the children of an element. */
export function fill(element, ...children) {
  element.replaceChildren();
  return add(element, children);
}

let count = 0;
/** A unique element id. */
export function unique(stem) {
  count += 1;
  return `${stem}-${count}`;
}

let waiting;
/** Announces text to screen readers politely. */
export function say(text) {
  const region = document.getElementById("polite");
  clearTimeout(waiting);
  waiting = setTimeout(() => {
    region.textContent = text;
  }, 120);
}

/** Announces text to screen readers at once. */
export function call(text) {
  document.getElementById("urgent").textContent = text;
}

/** Arrow keys, Home and End move the focus between the elements that `selector` finds. */
export function arrows(container, selector, keys = ["ArrowUp", "ArrowDown"]) {
  container.addEventListener("keydown", (event) => {
    const all = [...container.querySelectorAll(selector)].filter((each) => !each.disabled && each.offsetParent !== null);
    const at = all.indexOf(document.activeElement);
    if (at < 0 || event.altKey || event.ctrlKey || event.metaKey) return;
    const next = { [keys[0]]: at - 1, [keys[1]]: at + 1, Home: 0, End: all.length - 1 }[event.key];
    if (next === undefined) return;
    event.preventDefault();
    all[Math.max(0, Math.min(next, all.length - 1))].focus();
  });
  return container;
}
