// Chromium with eyes: every page notes each request, each report of the content security policy, each error and each dialog,
// and fails its case for what must not happen.

import assert from "node:assert/strict";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";

const FLAGS = [
  "--headless",
  "--no-sandbox",
  "--disable-gpu",
  "--disable-quic",
  "--no-first-run",
  "--disable-background-networking",
  "--disable-component-update",
  "--disable-sync",
  // Whatever a page asks for, no other machine hears of it.
  "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
];
/** Longest wait for something to appear. */
const WAIT = 20_000;
/** Faults of accessibility that fail. */
const GRAVE = ["serious", "critical"];

export class Browser {
  static async launch(chromium, executablePath, axe) {
    const browser = new Browser();
    browser.axe = axe;
    browser.profile = mkdtempSync(join(tmpdir(), "loopwright-chromium-"));
    browser.chromium = await chromium.launch({
      executablePath,
      args: FLAGS,
      env: { ...process.env, HOME: browser.profile },
    });
    browser.contexts = [];
    return browser;
  }

  /**
   * A page in a profile of its own.
   *
   * @param {{width?: number, scheme?: "light"|"dark", motion?: string}} [options]
   */
  async open(server, { width = 1280, height = width < 500 ? 844 : 860, scheme = "light", touch = false } = {}) {
    const context = await this.chromium.newContext({
      viewport: { width, height },
      colorScheme: scheme,
      hasTouch: touch,
      acceptDownloads: true,
      permissions: ["clipboard-read", "clipboard-write"],
      reducedMotion: "reduce",
    });
    context.setDefaultTimeout(WAIT);
    const faults = [];
    await context.exposeBinding("reportViolation", (_source, text) =>
      faults.push(`the content security policy was violated: ${text}`),
    );
    await context.addInitScript(() => {
      document.addEventListener("securitypolicyviolation", (event) =>
        window.reportViolation(`${event.effectiveDirective} ${event.blockedURI} ${event.sample}`),
      );
      window.pwn = () => window.reportViolation("a script of a model or of a tool was executed");
    });
    const opened = { context, faults };
    opened.page = await context.newPage();
    context.on("page", (other) => opened.expects || faults.push(`another page was opened: ${other.url()}`));
    watch(opened.page, server.url, faults);
    this.contexts.push(opened);
    return opened.page;
  }

  /** Another tab of the browser of a page. */
  async tab(page, server) {
    const opened = this.contexts.find((one) => one.page === page);
    opened.expects = true;
    const other = await opened.context.newPage();
    opened.expects = false;
    watch(other, server.url, opened.faults);
    return other;
  }

  /** Fails if a page has seen what must not happen. */
  async checkPages() {
    for (const { page, faults } of this.contexts) {
      if (!page.isClosed()) await page.evaluate(() => new Promise((resolve) => requestAnimationFrame(resolve)));
      assert.deepEqual(faults, [], "what must not happen in a page");
    }
  }

  async keepPictures(directory, name) {
    for (const [index, { page }] of this.contexts.entries()) {
      const path = join(directory, `failed-${name.replace(/\W+/g, "-")}-${index}.png`);
      await page.screenshot({ path }).catch(() => {});
    }
  }

  async closePages() {
    await Promise.all(this.contexts.map(({ context }) => context.close().catch(() => {})));
    this.contexts = [];
  }

  async close() {
    await this.closePages();
    await this.chromium.close();
    rmSync(this.profile, { recursive: true, force: true });
  }

  /** Fails for serious faults of accessibility in what the page shows. */
  async checkAccess(page, what) {
    // Over the protocol of the debugger: the page itself runs no foreign script.
    await page.evaluate(this.axe);
    const { violations } = await page.evaluate(() => window.axe.run(document, { resultTypes: ["violations"] }));
    const grave = violations.filter(({ impact }) => GRAVE.includes(impact));
    const words = grave.map(
      ({ id, help, nodes }) =>
        `${id}: ${help}\n  ${nodes
          .slice(0, 3)
          .map((node) => `${node.html.slice(0, 200)} ${node.failureSummary}`)
          .join("\n  ")}`,
    );
    assert.deepEqual(words, [], `accessibility of ${what}`);
  }
}

function watch(page, origin, faults) {
  page.on("request", (request) => {
    const url = request.url();
    if (!url.startsWith(`${origin}/`) && !/^(data|blob):/.test(url)) faults.push(`a request left the origin: ${url}`);
  });
  page.on("pageerror", (error) => faults.push(`an error in the page: ${error.stack ?? error.message}`));
  page.on("console", (message) => {
    // A status of 400 or more is an answer like others.
    if (message.type() === "error" && !/^Failed to load resource/.test(message.text()))
      faults.push(`an error on the console of the page: ${message.text()}`);
  });
  page.on("dialog", (dialog) => {
    faults.push(`a dialog was opened: ${dialog.message()}`);
    dialog.dismiss().catch(() => {});
  });
  page.on("crash", () => faults.push("the page crashed"));
}

/** Sends a message, as a person does. */
export async function say(page, text) {
  await page.getByRole("textbox", { name: "Message" }).fill(text);
  await page.getByRole("button", { name: "Send" }).click();
}

/** The bodies of the chat requests of a page, as they are sent. */
export function sentBy(page) {
  const bodies = [];
  page.on("request", (request) => {
    if (request.method() === "POST" && request.url().endsWith("/v1/chat/completions"))
      bodies.push(request.postDataJSON());
  });
  return bodies;
}

/** The last answer, once it is complete. */
export async function answered(page, count = 1) {
  await page.waitForFunction((wanted) => {
    const answers = document.querySelectorAll(".answer");
    return (
      answers.length >= wanted && !document.querySelector(".working") && !document.querySelector(".turn-footer[hidden]")
    );
  }, count);
  return page.locator(".answer").last();
}

/** Presses Tab until an element has the focus, and checks that the focus is seen. */
export async function tabTo(page, selector, { back = false, most = 80 } = {}) {
  for (let presses = 0; presses < most; presses += 1) {
    await page.keyboard.press(back ? "Shift+Tab" : "Tab");
    const found = await page.evaluate((wanted) => {
      const focused = document.activeElement;
      if (!focused?.matches(wanted)) return null;
      const shows = (element) => {
        const style = getComputedStyle(element);
        return (style.outlineStyle !== "none" && parseFloat(style.outlineWidth) > 0) || style.boxShadow !== "none";
      };
      return shows(focused) || shows(focused.closest(".composer-box") ?? focused) ? "seen" : "not seen";
    }, selector);
    if (found) return assert.equal(found, "seen", `the focus of ${selector} is to be seen`);
  }
  throw new Error(`Tab does not reach ${selector}`);
}
