/** Light or dark: as the machine has it, until somebody chooses; that is kept for the next visit. */

import { say } from "./dom.mjs";

const CHOICE = "heddle-colours";
const NEXT = { "light dark": "light", light: "dark", dark: "light dark" };
const NAMES = { "light dark": "colours: as the system", light: "colours: light", dark: "colours: dark" };

/** A choice that was kept; the machine's own where there is none. */
function kept() {
  const choice = localStorage.getItem(CHOICE);
  return choice in NEXT ? choice : "light dark";
}

function wear(button, choice) {
  document.documentElement.style.colorScheme = choice;
  say(button, NAMES[choice]);
}

/** Puts the choice into effect, and has the button go on to the next one. */
export function serve(button) {
  wear(button, kept());
  button.addEventListener("click", () => {
    const choice = NEXT[kept()];
    localStorage.setItem(CHOICE, choice);
    wear(button, choice);
  });
}
