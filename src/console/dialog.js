// Questions in a dialog: a confirmation, and the API key.

import { setApiKey } from "./api.js";
import { h, icon } from "./dom.js";

/** Shows a dialog with a form. Resolves to the value of the button that closed it. */
function ask(title, text, content, buttons) {
  return new Promise((resolve) => {
    const dialog = h(
      "dialog.dialog",
      { "aria-labelledby": "dialog-title", onclose: () => (dialog.remove(), resolve(dialog.returnValue)) },
      h(
        "form",
        { method: "dialog" },
        h("h2", { id: "dialog-title" }, title),
        h("p", null, text),
        content,
        h("div.dialog-actions", null, buttons),
      ),
    );
    document.body.append(dialog);
    dialog.showModal();
  });
}

export async function confirmed(title, text, action) {
  const chosen = await ask(title, text, null, [
    h("button.button", { value: "", autofocus: true }, "Cancel"),
    h("button.button.danger", { value: "yes" }, action),
  ]);
  return chosen === "yes";
}

/** Asks for the API key, and keeps it in this tab. Resolves to it, or to null. */
export async function askForKey(message) {
  const input = h("input", {
    id: "api-key",
    type: "password",
    autocomplete: "off",
    required: true,
    autofocus: true,
    "aria-describedby": "api-key-note",
  });
  const chosen = await ask(
    "This server needs an API key",
    message,
    [
      h("label", { for: "api-key" }, "API key"),
      input,
      h("p.muted", { id: "api-key-note" }, "It is kept in this tab only, until the tab is closed."),
    ],
    [
      h("button.button", { value: "", formnovalidate: true }, "Cancel"),
      h("button.button.primary", { value: "yes" }, icon("key"), "Use this key"),
    ],
  );
  const key = input.value.trim();
  if (chosen !== "yes" || !key) return null;
  setApiKey(key);
  return key;
}
