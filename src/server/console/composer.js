// The form for the next message: text, files, model, and what the request allows.

import { post } from "./api.js";
import { button, bytes, errorBox, fill, h, icon } from "./dom.js";
import { keepDraft, takeDraft } from "./pending.js";
import { explainUpstream } from "./readiness.js";
import { forget, models, preferences, tools } from "./server.js";

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
    this.stopButton = button("Stop", "stop", stop, {
      class: "stop",
      title: "Stop (Escape)",
      "aria-keyshortcuts": "Escape",
    });
    this.stopButton.hidden = true;
    this.element = h(
      "form.composer",
      {
        onsubmit: (event) => (event.preventDefault(), this.submit()),
        // A number out of range may be in the closed options, where the browser cannot show it: the server says what is wrong.
        novalidate: true,
        "aria-label": "New message",
      },
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
    this.loaded = this.load();
  }

  toggle(name, label, title, needs) {
    const control = h(
      "button.toggle",
      {
        type: "button",
        "aria-pressed": "false",
        title,
        onclick: () => {
          chosen = control.getAttribute("aria-pressed") !== "true";
          preferences.set(name, chosen);
          show();
        },
      },
      label,
    );
    /** What a person has chosen; null if nothing. */
    let chosen = preferences.get(name, null);
    /** Whether the server offers the tools to every request; null if that is not known. */
    let isOffered = null;
    const show = () => {
      control.setAttribute("aria-pressed", String(!control.disabled && Boolean(chosen ?? isOffered)));
      if (isOffered === null || control.disabled) return;
      const state = isOffered ? "The server offers this to every request." : "The server offers this on request only.";
      control.title = `${title}. ${chosen === null ? state : `Your choice: ${chosen ? "on" : "off"}.`}`;
    };
    show();
    return {
      element: control,
      needs,
      /** Shows what the server offers until a person chooses. */
      load: (offered, missing) => {
        const entries = offered.filter((tool) => needs.includes(tool.name));
        control.disabled = entries.length === 0;
        if (control.disabled) control.title = missing;
        isOffered = entries.some((tool) => !tool.on_request);
        show();
      },
      get on() {
        return control.getAttribute("aria-pressed") === "true";
      },
      /** What a person has chosen; null if nothing, or if the server has no such tools. */
      get choice() {
        return control.disabled ? null : chosen;
      },
    };
  }

  load() {
    return Promise.all([this.loadModels(), this.loadTools()]);
  }

  async loadModels() {
    let known = [];
    let problem = new Error("The model server lists no models.");
    try {
      known = await models();
    } catch (error) {
      problem = error;
    }
    const isMissing = known.length === 0;
    const box = isMissing && errorBox(problem, () => (forget(), this.load()));
    fill(this.problem, box);
    if (isMissing) explainUpstream(box);
    fill(
      this.model,
      isMissing ? h("option", { value: "" }, "no model") : known.map(({ id }) => h("option", { value: id }, id)),
    );
    const chosen = preferences.get("model", null);
    if (known.some((model) => model.id === chosen)) this.model.value = chosen;
    this.resize();
  }

  async loadTools() {
    // What is wrong with the server is said about the models.
    const offered = await tools().catch(() => null);
    if (!offered) return;
    this.code.load(offered, "This server runs no code. Start it with --enable-code-execution.");
    this.search.load(offered, "This server has no web search. Start it with --enable-search.");
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

  /**
   * The body of the request for a message. What nobody has chosen is left to the server.
   *
   * @param {boolean} needsCode whether this request asks for Python, whatever the switch says
   */
  async request(session, content, needsCode = false) {
    await this.loaded;
    // The model server may be there by now.
    if (!this.model.value) await this.load();
    const code = needsCode && !this.code.on ? true : this.code.choice;
    const search = this.search.choice;
    const instructions = this.instructions.value.trim();
    return {
      ...this.plainRequest(session, [
        ...(instructions ? [{ role: "system", content: instructions }] : []),
        { role: "user", content },
      ]),
      stream_options: { include_usage: true },
      ...(code !== null && { enable_code_execution: code }),
      ...(search && { web_search_options: {} }),
      ...(this.ask.on && { agent_permission: "ask" }),
      ...(this.rounds.value !== "" && { max_tool_rounds: Number(this.rounds.value) }),
      agent: { on_disconnect: "finish", ...(search === false && { tools: { deny: this.search.needs } }) },
    };
  }

  /** A request without any choice. Without messages it goes on with what waits in the session, which keeps what it has asked for. */
  plainRequest(session, messages) {
    return { model: this.model.value, messages, stream: true, session_id: session };
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
