// Dark or light: what the system says, or what a person has chosen.

import { announce, fill, h, icon } from "./dom.js";
import { preferences } from "./server.js";

const CHOICES = { auto: "System colours", light: "Light colours", dark: "Dark colours" };

function apply(choice) {
  choice === "auto" ? delete document.documentElement.dataset.theme : (document.documentElement.dataset.theme = choice);
}

const known = () => {
  const choice = preferences.get("theme", "auto");
  return CHOICES[choice] ? choice : "auto";
};

apply(known());

/** A button that goes through the choices. */
export function themeButton() {
  const names = Object.keys(CHOICES);
  const draw = (choice) => fill(control, icon({ auto: "auto", light: "sun", dark: "moon" }[choice]), CHOICES[choice]);
  const control = h("button.button.quiet", {
    type: "button",
    id: "theme",
    onclick: () => {
      const next = names[(names.indexOf(known()) + 1) % names.length];
      preferences.set("theme", next);
      apply(next);
      draw(next);
      announce(CHOICES[next]);
    },
  });
  draw(known());
  return control;
}
