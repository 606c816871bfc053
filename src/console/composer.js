// The form for the next message: text, files, model, and what the request allows.

import { post } from "./api.js";
import { button, bytes, errorBox, fill, h, icon } from "./dom.js";
import { keepDraft, takeDraft } from "./pending.js";
import { models, preferences, tools } from "./server.js";

export class Composer {
  /**
   * @param {object} options
   * @param {function} options.send sends `{text, files}`
   * @param {function} options.stop stops the run
   * @param {function} options.session the id of the session, which is made if there is none
   * @param {string} [options.known] the id of the session, if there is one
   */
  constructor({ send, stop, session, known }) {
    this.onSend = send;
    this.session = session;
    this.known = known;
    this.files = [];
    this.text = h("textarea.message", {
      id: "message",
      rows: 1,
      placeholder: "Message",
      "aria-label": "Message",
      oninput: () => this.resize(),
      onkeydown: (event) => {
        const isTouch = matchMedia("(pointer: coarse)").matches;
        if (event.key !== "Enter" || event.shiftKey || event.isComposing || isTouch) return;
        event.preventDefault();
        this.submit();
      },
    });
    this.model = h("select", { id: "model", onchange: () => preferences.set("model", this.model.value) });
    this.code = this.toggle("code", "Python", "Lets the model run Python code", ["execute_python"]);
    this.search = this.toggle("search", "Web", "Lets the model search the web and read pages", [
      "web_search",
      "read_page",
    ]);
    this.ask = this.toggle("ask", "Ask first", "Each call waits for your decision", []);
    this.instructions = h("textarea", {
      id: "instructions",
      rows: 3,
      placeholder: "None: those of the session stay as they are",
    });
    this.rounds = h("input", { id: "rounds", type: "number", min: 0, max: 256, placeholder: "server's" });
    this.progress = h("div.uploads", { role: "status" });
    this.problem = h("div", null);
    this.picker = h("input", {
      type: "file",
      multiple: true,
      hidden: true,
      tabindex: "-1",
      "aria-hidden": "true",
      onchange: () => this.upload(),
    });
    this.sendButton = h("button.button.primary.send", { type: "submit" }, icon("send"), h("span.hidden", null, "Send"));
    this.stopButton = button("Stop", "stop", stop, { class: "stop" });
    this.stopButton.hidden = true;
    this.element = h(
      "form.composer",
      { onsubmit: (event) => (event.preventDefault(), this.submit()), "aria-label": "New message" },
      this.problem,
      this.progress,
      h(
        "div.composer-box",
        null,
        this.text,
        h(
          "div.composer-bar",
          null,
          button("Attach files", "attach", () => this.picker.click(), { quiet: true }),
          this.picker,
          this.code.element,
          this.search.element,
          this.ask.element,
          h(
            "div.composer-end",
            null,
            h("label.model", null, h("span.hidden", null, "Model"), this.model),
            this.stopButton,
            this.sendButton,
          ),
        ),
      ),
      h(
        "details.more.composer-more",
        null,
        h("summary", null, icon("chevron"), "Request options"),
        h(
          "div.fields",
          null,
          h("div.field", null, h("label", { for: "instructions" }, "Instructions (system message)"), this.instructions),
          h("div.field.narrow", null, h("label", { for: "rounds" }, "Most rounds of tool calls"), this.rounds),
        ),
      ),
    );
    this.text.value = takeDraft(known);
    this.load();
  }

  toggle(name, label, title, needs) {
    const control = h(
      "button.toggle",
      {
        type: "button",
        "aria-pressed": "false",
        title,
        onclick: () => {
          const on = control.getAttribute("aria-pressed") !== "true";
          control.setAttribute("aria-pressed", String(on));
          preferences.set(name, on);
        },
      },
      label,
    );
    return {
      element: control,
      needs,
      set: (on) => control.setAttribute("aria-pressed", String(on)),
      get on() {
        return control.getAttribute("aria-pressed") === "true" && !control.disabled;
      },
    };
  }

  async load() {
    try {
      const [known, offered] = await Promise.all([models(), tools()]);
      fill(
        this.model,
        known.map((model) => h("option", { value: model.id }, model.id)),
      );
      const chosen = preferences.get("model", null);
      if (known.some((model) => model.id === chosen)) this.model.value = chosen;
      if (!known.length) fill(this.model, h("option", { value: "" }, "no model"));
      this.offered = new Set(offered.map((tool) => tool.name));
      const has = (toggle) => toggle.needs.some((tool) => this.offered.has(tool));
      this.switch(
        this.code,
        has(this.code),
        preferences.get("code", false),
        "This server runs no code. Start it with --enable-code-execution.",
      );
      this.switch(
        this.search,
        has(this.search),
        preferences.get("search", true),
        "This server has no web search. Start it with --enable-search.",
      );
      this.ask.set(preferences.get("ask", false));
      fill(
        this.problem,
        known.length ? null : errorBox(new Error("The model server lists no models. See Status for what is wrong.")),
      );
    } catch (error) {
      fill(
        this.problem,
        errorBox(error, () => this.load()),
      );
    }
    this.resize();
  }

  switch(toggle, possible, on, why) {
    toggle.element.disabled = !possible;
    if (!possible) toggle.element.title = why;
    toggle.set(possible && on);
  }

  setCode(on) {
    this.code.set(on);
  }

  setBusy(busy) {
    this.stopButton.hidden = !busy;
    this.sendButton.hidden = busy;
    if (busy && document.activeElement === this.sendButton) this.text.focus();
  }

  focus() {
    if (matchMedia("(pointer: fine)").matches) this.text.focus();
  }

  resize() {
    this.text.style.height = "auto";
    this.text.style.height = `${Math.min(this.text.scrollHeight, 240)}px`;
  }

  submit() {
    const text = this.text.value.trim();
    if ((!text && !this.files.length) || !this.stopButton.hidden) return;
    const files = this.files;
    this.text.value = "";
    this.files = [];
    this.drawFiles();
    this.resize();
    this.onSend({ text, files });
  }

  async upload() {
    for (const file of this.picker.files) {
      const form = new FormData();
      form.append("purpose", "user_data");
      form.append("session_id", this.session());
      form.append("file", file);
      try {
        this.files.push(await post("/v1/files", form));
      } catch (error) {
        fill(this.problem, errorBox(error));
      }
      this.drawFiles();
    }
    this.picker.value = "";
  }

  drawFiles() {
    fill(
      this.progress,
      this.files.map((file) =>
        h(
          "span.chip",
          null,
          icon("file"),
          file.filename,
          h("span.muted", null, bytes(file.bytes)),
          button(
            `Leave out ${file.filename}`,
            "close",
            () => {
              this.files = this.files.filter((one) => one !== file);
              this.drawFiles();
            },
            { quiet: true },
          ),
        ),
      ),
    );
  }

  /** The body of the request. Without a content it goes on with what waits in the session. */
  async request(session, content) {
    await Promise.all([models(), tools()]).catch(() => {});
    const agent = { on_disconnect: "finish" };
    const isOffered = (names) => names.some((name) => this.offered?.has(name));
    if (isOffered(this.search.needs) && !this.search.on) agent.tools = { deny: this.search.needs };
    const instructions = this.instructions.value.trim();
    const messages = content === null ? [] : [{ role: "user", content }];
    if (instructions && messages.length) messages.unshift({ role: "system", content: instructions });
    return {
      model: this.model.value,
      messages,
      stream: true,
      stream_options: { include_usage: true },
      session_id: session,
      ...(isOffered(this.code.needs) && { enable_code_execution: this.code.on }),
      ...(isOffered(this.search.needs) && this.search.on && { web_search_options: {} }),
      ...(this.ask.on && { agent_permission: "ask" }),
      ...(this.rounds.value !== "" && { max_tool_rounds: Number(this.rounds.value) }),
      agent,
    };
  }

  /** Puts a message back that could not be sent. */
  restore(text) {
    if (!this.text.value) this.text.value = text;
    this.resize();
  }

  leave() {
    if (this.text.value.trim()) keepDraft(this.known, this.text.value);
  }
}
