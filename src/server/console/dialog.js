// Questions in a dialog: a confirmation, and the API key.

import { apiKey, isAccepted, setApiKey } from "./api.js";
import { button, h, icon } from "./dom.js";

/**
 * Shows a dialog with a form. Resolves to whether it was closed with "yes".
 *
 * Enter in a field presses the first submit button, so the action is the only one.
 */
function ask(title, content, action, { isCautious = false, onsubmit } = {}) {
  return new Promise((resolve) => {
    const cancel = button("Cancel", null, () => dialog.close(), { autofocus: isCautious });
    const dialog = h(
      "dialog.dialog",
      {
        "aria-labelledby": "dialog-title",
        onclose: () => (dialog.remove(), resolve(dialog.returnValue === "yes")),
      },
      h(
        "form",
        { method: "dialog", onsubmit: (event) => onsubmit?.(event, dialog) },
        h("h2", { id: "dialog-title" }, title),
        content,
        h("div.dialog-actions", null, cancel, action),
      ),
    );
    document.body.append(dialog);
    dialog.showModal();
  });
}

/** Asks before something that cannot be undone. The focus is on Cancel, as the WAI-ARIA authoring practices say. */
export function confirmed(title, text, action) {
  const submit = h("button.button.danger", { type: "submit", value: "yes" }, action);
  return ask(title, h("p", null, text), submit, { isCautious: true });
}

/** Asks for the API key until the server accepts one, and keeps it in this tab. Resolves to whether there is one. */
export function askForKey() {
  const input = h("input", {
    id: "api-key",
    type: "password",
    autocomplete: "off",
    required: true,
    autofocus: true,
    "aria-describedby": "api-key-note api-key-problem",
  });
  const problem = h("p.problem", { id: "api-key-problem", role: "alert" });
  const submit = h("button.button.primary", { type: "submit", value: "yes" }, icon("key"), "Use this key");
  const tryKey = async (event, dialog) => {
    event.preventDefault();
    const key = input.value.trim();
    problem.textContent = "";
    submit.disabled = true;
    try {
      if (await isAccepted(key)) {
        if (!dialog.open) return;
        setApiKey(key);
        dialog.close("yes");
        return;
      }
      problem.textContent = "This key is not accepted.";
    } catch (error) {
      problem.textContent = error.message;
    }
    submit.disabled = false;
    input.focus();
    input.select();
  };
  const reason = apiKey() ? "The key of this tab is no longer accepted." : "Requests to this server need a key.";
  return ask(
    "This server needs an API key",
    [
      h("p", null, `${reason} Ask the operator of the server for one.`),
      h("label", { for: "api-key" }, "API key"),
      input,
      problem,
      h("p.muted", { id: "api-key-note" }, "It is kept in this tab only, until the tab is closed."),
    ],
    submit,
    { onsubmit: tryKey },
  );
}
