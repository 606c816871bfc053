// A server with API keys: the page asks once, and keeps the key in its tab only.

import assert from "node:assert/strict";

import { answered, say, sentBy, tabTo } from "./browser.mjs";

const KEY = "key-of-the-console-test";

const dialogOf = (page) => page.getByRole("dialog", { name: "This server needs an API key" });

/** The names of the tools that the model server was offered last. */
const offeredBy = (server) => (server.upstream.requests.at(-1).tools ?? []).map((tool) => tool.function.name);

async function give(page, key) {
  const dialog = dialogOf(page);
  await dialog.getByLabel("API key", { exact: true }).fill(key);
  await dialog.getByRole("button", { name: "Use this key" }).click();
}

export const cases = [
  [
    "the key is asked for once and kept in the tab",
    async ({ browser, server }) => {
      const page = await browser.open(server);
      await page.goto(`${server.url}/`);
      await dialogOf(page).waitFor();
      assert.equal(await page.getByRole("dialog").count(), 1);
      await browser.checkAccess(page, "the question for the key");
      await give(page, KEY);
      await page.locator(".suggestion").first().waitFor();
      await say(page, "Who am I?");
      assert.match(await (await answered(page)).innerText(), /You said: Who am I\?/);
      const kept = await page.evaluate(
        (key) => ({
          session: Object.values(sessionStorage).includes(key),
          local: JSON.stringify(localStorage).includes(key),
          cookie: document.cookie,
          page: document.documentElement.outerHTML.includes(key),
        }),
        KEY,
      );
      assert.deepEqual(kept, { session: true, local: false, cookie: "", page: false });
      await page.reload();
      await page.locator(".question").waitFor();
      assert.equal(await page.getByRole("dialog").count(), 0, "a reload does not ask again");
      await page.locator(".answer").getByRole("button", { name: "Show as code" }).click();
      const shown = await page.getByRole("dialog").innerText();
      assert.match(shown, /LOOPWRIGHT_API_KEY/);
      assert.ok(!shown.includes(KEY), "code shows no key");
      await page.keyboard.press("Escape");
      const other = await browser.tab(page, server);
      await other.goto(`${server.url}/`);
      await dialogOf(other).waitFor();
      await other.close();
    },
  ],
  [
    "a wrong key is said in the dialog, which stays open, and a right one can be forgotten",
    async ({ browser, server }) => {
      const page = await browser.open(server);
      await page.goto(`${server.url}/#/tools`);
      const dialog = dialogOf(page);
      const input = dialog.getByLabel("API key", { exact: true });
      const alert = dialog.getByRole("alert");
      await input.waitFor();
      await page.evaluate(() => (window.dialog = document.querySelector("dialog")));
      for (const wrong of ["a-wrong-key", "a wrong key", "ключ"]) {
        await input.fill(wrong);
        await input.press("Enter");
        await page.waitForFunction(() => !document.querySelector(".dialog .primary").disabled);
        assert.equal(await alert.innerText(), "This key is not accepted.");
        const [isFocused, selected] = await input.evaluate((field) => [
          document.activeElement === field,
          field.selectionEnd - field.selectionStart,
        ]);
        assert.deepEqual([isFocused, selected], [true, wrong.length]);
      }
      await browser.checkAccess(page, "a key that is not accepted");
      await page.route("**/v1/agent/tools", (route) => route.abort());
      await input.fill("any-key");
      await input.press("Enter");
      await alert.getByText("The server cannot be reached.").waitFor();
      await page.unroute("**/v1/agent/tools");
      assert.doesNotMatch(await dialog.innerText(), /Bearer/, "the words are the page's own");
      assert.ok(await page.evaluate(() => window.dialog.open), "it is still the same dialog");
      await input.fill(KEY);
      await input.press("Enter");
      await dialog.waitFor({ state: "detached" });
      await page.locator(".tool-list li").first().waitFor();
      await page.getByRole("button", { name: "Forget the key" }).click();
      assert.equal(await page.evaluate(() => sessionStorage.getItem("loopwright.key")), null);
    },
  ],
  [
    "a question that is declined stays away",
    async ({ browser, server }) => {
      const page = await browser.open(server);
      await page.goto(`${server.url}/#/sessions`);
      await dialogOf(page).getByRole("button", { name: "Cancel" }).click();
      await page.locator(".notice.error").waitFor();
      assert.equal(await page.getByRole("dialog").count(), 0);
      await page.getByRole("button", { name: "Try again" }).click();
      await give(page, KEY);
      await page.locator("tbody tr, .empty").first().waitFor();
    },
  ],
  [
    "another key sees nothing of the first, and is no operator",
    async ({ browser, server }) => {
      const page = await browser.open(server);
      await page.goto(`${server.url}/#/sessions`);
      await give(page, "key-of-another-person");
      await page.getByText("There are no sessions.").waitFor();
      await page.goto(`${server.url}/#/status`);
      await page.getByText("The figures are for keys with operator = true.").waitFor();
    },
  ],
  [
    "Python on request: the switch is off until a person chooses, and a suggestion asks once",
    async ({ browser, server }) => {
      const page = await browser.open(server);
      const sent = sentBy(page);
      await page.goto(`${server.url}/`);
      await give(page, KEY);
      const [python, web] = ["Python", "Web"].map((name) => page.getByRole("button", { name, exact: true }));
      const plot = page.getByRole("button", { name: "Plot a damped sine wave" });
      await plot.waitFor();
      const pressed = async () => [await python.getAttribute("aria-pressed"), await web.getAttribute("aria-pressed")];
      assert.deepEqual(await pressed(), ["false", "false"]);
      assert.match(await python.getAttribute("title"), /on request only/);
      await plot.click();
      await answered(page);
      assert.equal(sent.at(-1).enable_code_execution, true);
      assert.ok(offeredBy(server).includes("execute_python"));
      assert.deepEqual(await pressed(), ["false", "false"], "the switch stays as it was");
      assert.equal(await page.evaluate(() => localStorage.getItem("loopwright.code")), null);
      await say(page, "No code, please.");
      await answered(page, 2);
      for (const name of ["enable_code_execution", "web_search_options", "agent_permission"])
        assert.ok(!(name in sent.at(-1)), `nobody has chosen ${name}`);
      assert.deepEqual(sent.at(-1).agent, { on_disconnect: "finish" });
      assert.ok(!offeredBy(server).includes("execute_python"));
      await page.locator(".answer").first().getByRole("button", { name: "Show as code" }).click();
      await page
        .getByRole("dialog", { name: "The request of this answer" })
        .getByText("enable_code_execution")
        .waitFor();
      await page.keyboard.press("Escape");
      await python.click();
      await web.click();
      await say(page, "Code and web.");
      await answered(page, 3);
      assert.equal(sent.at(-1).enable_code_execution, true);
      assert.deepEqual(sent.at(-1).web_search_options, {});
      assert.ok(["execute_python", "web_search"].every((name) => offeredBy(server).includes(name)));
      await page.reload();
      await page.locator(".question").nth(2).waitFor();
      assert.deepEqual(await pressed(), ["true", "true"], "a choice is kept");
      await page.locator(".answer").first().getByRole("button", { name: "Show as code" }).click();
      const shown = await page.getByRole("dialog", { name: "A plain request with this message" }).innerText();
      assert.doesNotMatch(shown, /enable_code_execution|web_search_options|agent/, "no claims about what is not known");
      await page.keyboard.press("Escape");
      await python.click();
      await web.click();
      await say(page, "Neither.");
      await answered(page, 4);
      assert.equal(sent.at(-1).enable_code_execution, false);
      assert.deepEqual(sent.at(-1).agent.tools, { deny: ["web_search", "read_page"] });
    },
  ],
  [
    "a tour with the keyboard alone",
    async ({ browser, server }) => {
      const page = await browser.open(server);
      const { keyboard } = page;
      const sent = sentBy(page);
      const states = () => page.locator(".call-state").allInnerTexts();
      const isFocused = (selector) => page.waitForFunction((one) => document.activeElement?.matches(one), selector);
      const send = async (text) => {
        await keyboard.type(text);
        await keyboard.press("Enter");
      };
      await page.goto(`${server.url}/`);
      await isFocused("#api-key");
      await send("a-wrong-key");
      await dialogOf(page).getByText("This key is not accepted.").waitFor();
      await isFocused("#api-key");
      await send(KEY);
      await dialogOf(page).waitFor({ state: "detached" });
      await page.locator(".suggestion").first().waitFor();
      await isFocused("#message");
      await tabTo(page, '.toggle[title^="Lets the model run Python"]');
      await keyboard.press("Space");
      await tabTo(page, "#message", { back: true });
      await send("Hello from the keyboard.");
      assert.match(await (await answered(page)).innerText(), /You said: Hello from the keyboard\./);
      assert.equal(sent.at(-1).enable_code_execution, true);
      assert.ok(offeredBy(server).includes("execute_python"));
      await send("two payments");
      await page.locator(".approval").nth(1).waitFor();
      await tabTo(page, ".call-item:first-child .approval input", { back: true });
      await send("Not Ada.");
      // At once without its time, and with it when the event of its end comes.
      await page.locator(".call-state", { hasText: /^denied · \d+ ms$/ }).waitFor();
      assert.equal((await states())[1], "waits for you");
      assert.equal(await page.locator(".working").innerText(), "Waiting for your decision");
      await tabTo(page, ".approval .primary");
      await keyboard.press("Enter");
      assert.match(await (await answered(page, 2)).innerText(), /Not Ada\./);
      const ended = await states();
      assert.match(ended[0], /^denied · \d+ ms$/);
      assert.match(ended[1], /^done · \d+ ms$/);
      await tabTo(page, "#message");
      await send("gate:keyboard");
      await page.locator(".answer", { hasText: "The first half." }).waitFor();
      await keyboard.press("Escape");
      assert.match(await (await answered(page, 3)).innerText(), /The run was stopped\./);
      await page.reload();
      await page.locator(".answer .turn-footer:not([hidden])").nth(2).waitFor();
      const asked = await page.locator(".question-text").allInnerTexts();
      assert.deepEqual(asked, ["Hello from the keyboard.", "two payments", "gate:keyboard"]);
      assert.match(await page.locator(".answer").last().innerText(), /The first half\./);
      assert.equal(await page.getByRole("dialog").count(), 0, "the key is not asked for again");
      const python = page.locator('.toggle[title^="Lets the model run Python"]');
      assert.equal(await python.getAttribute("aria-pressed"), "true");
    },
  ],
];
