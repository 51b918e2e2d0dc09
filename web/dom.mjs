/** What sections of the page are made with: elements, lists that keep their elements, figures. */

const SVG = "http://www.w3.org/2000/svg";

/** An element with attributes, and children that are elements or text. */
export function element(tag, attributes = {}, ...children) {
  return fill(document.createElement(tag), attributes, children);
}

/** The same in SVG. */
export function drawing(tag, attributes = {}, ...children) {
  return fill(document.createElementNS(SVG, tag), attributes, children);
}

function fill(made, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    made.setAttribute(name, value);
  }
  made.append(...children);
  return made;
}

/** Makes the children of `parent` those of `items`, in their order. Who was there before stays the same element, so that
 * nothing is pulled away under a pointer or a reader. `make(item)` gives an element, `update(element, item)` its content. */
export function list(parent, items, key, make, update) {
  const before = new Map([...parent.children].map((child) => [child.dataset.key, child]));
  items.forEach((item, at) => {
    const name = String(key(item));
    let child = before.get(name);
    before.delete(name);
    if (child === undefined) {
      child = make(item);
      child.dataset.key = name;
    }
    update(child, item);
    if (parent.children[at] !== child) {
      parent.insertBefore(child, parent.children[at] ?? null);
    }
  });
  before.forEach((child) => child.remove());
}

/** Says it only where it is new, so that selections live. */
export function say(target, text) {
  if (target.textContent !== text) {
    target.textContent = text;
  }
}

/** 1536 -> "1.50 KiB". */
export function bytes(count) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let unit = 0;
  while (count >= 1024 && unit + 1 < units.length) {
    count /= 1024;
    unit += 1;
  }
  return `${unit === 0 ? count : count.toPrecision(3)} ${units[unit]}`;
}

/** Milliseconds, in what unit reads best. */
export function duration(ms) {
  if (ms < 1) {
    return `${Math.round(ms * 1000)} µs`;
  }
  if (ms < 1000) {
    return `${ms.toPrecision(ms < 10 ? 2 : 3)} ms`;
  }
  if (ms < 60_000) {
    return `${(ms / 1000).toPrecision(3)} s`;
  }
  const minutes = Math.floor(ms / 60_000);
  return minutes < 60 ? `${minutes} min` : `${Math.floor(minutes / 60)} h ${minutes % 60} min`;
}
