/** The page's document without a browser: what scripts of the page find around them. */

import { readFileSync } from "node:fs";
import { createRequire } from "node:module";

// NODE_PATH says where jsdom is, which only require() heeds.
const { JSDOM } = createRequire(import.meta.url)("jsdom");

/** Opens index.html at `url`, a server's /ui/. */
export function open(url) {
  const html = readFileSync(new URL("../../web/index.html", import.meta.url), "utf8");
  const { window } = new JSDOM(html, { url, pretendToBeVisual: true });
  for (const name of ["document", "localStorage", "sessionStorage", "Event"]) {
    Object.defineProperty(globalThis, name, { value: window[name], configurable: true });
  }
  return window.document;
}

/** Waits until `find()` gives something, and gives that. */
export async function until(find, what) {
  for (const end = Date.now() + 30_000; Date.now() < end; ) {
    const found = find();
    if (found) {
      return found;
    }
    await new Promise((go) => setTimeout(go, 20));
  }
  throw new Error(`${what} did not happen; the page says:\n${document.body.textContent.replace(/\s+/g, " ")}`);
}
