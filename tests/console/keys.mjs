// A server with API keys: the page asks once, and keeps the key in its tab only.

import assert from "node:assert/strict";

import { answered, say } from "./browser.mjs";

const KEY = "key-of-the-console-test";

const dialogOf = (page) => page.getByRole("dialog", { name: "This server needs an API key" });

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
    "a wrong key is asked for again, and can be forgotten",
    async ({ browser, server }) => {
      const page = await browser.open(server);
      await page.goto(`${server.url}/#/tools`);
      await dialogOf(page).waitFor();
      await give(page, "a wrong key");
      await dialogOf(page).waitFor();
      await give(page, KEY);
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
];
