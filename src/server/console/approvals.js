// Calls that wait for a person: a card that decides about one, used in the chat and in the list of all that wait.

import { get, path, post } from "./api.js";
import { announce, button, count, errorBox, fill, h, icon, notice, onChanges, visible, when } from "./dom.js";
import { parseArguments, prettyJson } from "./json.js";
import { showSnippets } from "./snippets.js";

export class ApprovalCard {
  /**
   * @param {object} approval an entry of `GET /v1/agent/approvals`, or the event that asks
   * @param {function} onDecided called with the answer of the server and the decision
   */
  constructor(approval, onDecided) {
    this.approval = approval;
    this.onDecided = onDecided;
    const shown = visible(prettyJson(approval.arguments ?? {}));
    this.shown = shown;
    const id = `approval-${approval.approval_id}`;
    this.arguments = h("textarea.code", {
      id: `${id}-arguments`,
      rows: Math.min(12, Math.max(3, shown.split("\n").length)),
      spellcheck: "false",
      value: shown,
      "aria-describedby": `${id}-problem`,
      oninput: () => this.check(),
    });
    this.problem = h("p.problem", { id: `${id}-problem`, role: "alert" });
    this.remember = h(
      "select",
      { "aria-label": "What is allowed for this session" },
      h("option", { value: "same" }, "calls like this one"),
      h("option", { value: "tool" }, `every call of ${approval.tool}`),
    );
    this.reason = h("input", {
      type: "text",
      maxlength: 2000,
      autocomplete: "off",
      placeholder: "Reason, told to the model",
      "aria-label": "Reason of a denial, told to the model",
      onkeydown: (event) => {
        if (event.key === "Enter" && !event.isComposing && this.reason.value.trim()) this.deny();
      },
    });
    this.allow = button("Allow once", "check", () => this.decide({ decision: "approve" }), { class: "primary" });
    const allowMore = button("Allow for this session", null, () =>
      this.decide({ decision: "approve", remember_for_session: this.remember.value === "tool" ? "tool" : true }),
    );
    const deny = button("Deny", "close", () => this.deny(), { class: "danger" });
    this.controls = [this.allow, allowMore, deny];
    const { rule } = approval;
    this.element = h(
      "section.approval",
      { "aria-label": `Decision about ${approval.tool}` },
      h("p.approval-title", null, icon("approvals"), h("strong", null, approval.tool), " waits for your decision"),
      approval.reason && h("p", null, "Reason: ", visible(String(approval.reason))),
      h(
        "p.muted",
        null,
        rule ? `Rule ${rule.index} of the ${rule.level} asks. ` : "The default permission asks. ",
        approval.expires_at && ["Expires ", when(approval.expires_at), "."],
      ),
      h("label", { for: `${id}-arguments` }, "Arguments (you can change them)"),
      this.arguments,
      this.problem,
      h("div.row", null, this.allow, h("span.choice", null, allowMore, this.remember)),
      h(
        "div.row",
        null,
        h("span.choice", null, deny, this.reason),
        button("Show as code", "code", () => this.showCode(), { quiet: true }),
      ),
    );
  }

  /** The arguments if a person has changed them; throws if they are no JSON object. */
  edited() {
    return this.arguments.value === this.shown ? undefined : parseArguments(this.arguments.value);
  }

  check() {
    try {
      this.edited();
      this.problem.textContent = "";
      this.allow.querySelector("span").textContent =
        this.arguments.value === this.shown ? "Allow once" : "Allow with these arguments";
      return true;
    } catch (error) {
      this.problem.textContent = `The arguments are not valid: ${error.message}`;
      return false;
    }
  }

  body(decision) {
    const edited = decision.decision === "approve" ? this.edited() : undefined;
    return { ...decision, ...(edited && { arguments: edited }) };
  }

  showCode() {
    if (!this.check()) return;
    showSnippets("This decision", {
      method: "POST",
      path: path`/v1/agent/approvals/${this.approval.approval_id}`,
      body: this.body({ decision: "approve" }),
    });
  }

  deny() {
    const message = this.reason.value.trim();
    return this.decide({ decision: "deny", ...(message && { message }) });
  }

  async decide(decision) {
    if (this.allow.disabled) return undefined;
    if (decision.decision === "approve" && !this.check()) return this.arguments.focus();
    for (const control of this.controls) control.disabled = true;
    try {
      const body = this.body(decision);
      const answer = await post(path`/v1/agent/approvals/${this.approval.approval_id}`, body);
      const words = decision.decision === "approve" ? "Allowed" : "Denied";
      announce(`${words}: ${this.approval.tool}.`);
      fill(
        this.element,
        h(
          "p.approval-title",
          null,
          icon(decision.decision === "approve" ? "check" : "close"),
          `${words}: ${this.approval.tool}`,
        ),
      );
      this.element.classList.add("decided");
      this.onDecided?.(answer, decision);
      document.dispatchEvent(new CustomEvent("approvals-changed"));
    } catch (error) {
      if (error.code === "approval_decided") return this.close(error.decision);
      this.problem.textContent = error.message;
      for (const control of this.controls) control.disabled = false;
    }
    return undefined;
  }

  /** Shows that the call was decided elsewhere: `approve`, `deny`, `expired`, or null if the server does not say. */
  close(decision) {
    const words = { approve: "allowed", deny: "denied", expired: "expired" }[decision];
    this.problem.textContent = `This call is decided already${words ? `: ${words}` : ""}.`;
    this.onDecided?.({ status: "decided" }, { decision });
    document.dispatchEvent(new CustomEvent("approvals-changed"));
  }
}

/** How many calls wait, as a sentence. */
export function callsWait(number) {
  return `${number ? count(number, "call") : "No call"} ${number > 1 ? "wait" : "waits"} for a decision.`;
}

/** The approvals that wait. */
export async function waitingApprovals(options) {
  return (await get("/v1/agent/approvals", options)).data;
}

/** The ids of the sessions in which a call waits. */
export async function waitingSessions() {
  const waiting = await waitingApprovals({ quiet: true }).catch(() => []);
  return new Set(waiting.map((approval) => approval.session_id));
}

/** What a session does: a call waits for a person, or a run goes on. */
export function sessionMark(session, waiting) {
  if (waiting.has(session.id)) return h("span.badge.wait", null, "waits for you");
  return session.running ? h("span.badge", null, "running") : null;
}

/** The view of all that waits. */
export function approvalsView() {
  const list = h("div.stack", null);
  const shown = new Map();
  const refresh = async () => {
    try {
      const waiting = await waitingApprovals();
      const ids = new Set(waiting.map((approval) => approval.approval_id));
      // Cards that are there stay, so that nothing is lost that a person is writing.
      for (const [id, element] of shown) if (!ids.has(id) && !element.querySelector(".decided")) shown.delete(id);
      for (const approval of waiting) {
        if (shown.has(approval.approval_id)) continue;
        const card = new ApprovalCard(approval, ({ status }) => {
          if (status === "queued")
            card.element.append(
              h("p.muted", null, "The run goes on by itself, or with the next message of its session."),
            );
        });
        shown.set(
          approval.approval_id,
          h(
            "div",
            null,
            card.element,
            h(
              "p.muted.approval-links",
              null,
              // The turn may have no stored session.
              approval.session_id && [
                h("a", { href: `#/chat/${encodeURIComponent(approval.session_id)}` }, "Open its session"),
                " · ",
              ],
              h("a", { href: `#/runs/${encodeURIComponent(approval.run_id)}` }, "Open its run"),
            ),
          ),
        );
      }
      if (!shown.size) {
        fill(
          list,
          notice(
            "empty",
            h("p", null, "Nothing waits for a decision."),
            h("p.muted", null, "A call waits here if a permission rule says ask. Try a rule under Permissions."),
          ),
        );
      } else if (
        list.children.length !== shown.size ||
        [...shown.values()].some((element) => element.parentNode !== list)
      ) {
        fill(list, [...shown.values()]);
      }
      state.textContent = shown.size ? callsWait(waiting.length) : "";
    } catch (error) {
      fill(list, errorBox(error, refresh));
    }
  };
  const state = h("span.muted", { role: "status" });
  const element = h(
    "div.view",
    null,
    h(
      "header.view-head",
      null,
      h("h1", { tabindex: "-1" }, "Approvals"),
      state,
      button("Refresh", "refresh", refresh, { quiet: true }),
    ),
    list,
  );
  refresh();
  const timer = setInterval(() => !document.hidden && refresh(), 5000);
  const left = new AbortController();
  onChanges(refresh, left.signal);
  return { element, leave: () => (clearInterval(timer), left.abort()) };
}
