// The tour of the demo, by clicking what the page proposes.

import assert from "node:assert/strict";
import { readFile } from "node:fs/promises";
import { join } from "node:path";

import { answered, say, sentBy } from "./browser.mjs";

const PNG = Buffer.from([0x89, 0x50, 0x4e, 0x47]);

async function propose(page, server, words) {
  await page.goto(`${server.url}/`);
  await page.getByRole("button", { name: words }).click();
}

export const cases = [
  [
    "two tools in one batch",
    async ({ browser, server }) => {
      const page = await browser.open(server);
      await propose(page, server, "weather in Oslo and Nairobi");
      const answer = await answered(page);
      assert.equal(await answer.locator(".call").count(), 2);
      assert.match(await answer.innerText(), /Oslo: 9 °C/);
      assert.match(await answer.locator(".usage").innerText(), /tokens in · \d+ out · 1 round · 2 model calls/);
      const call = answer.locator(".call").first();
      await call.locator("summary").click();
      await call.getByText("temperature_c").waitFor();
      assert.match(await call.innerText(), /done · \d+ ms/);
      // The answer is read out once, when it is complete.
      await page.waitForFunction(() =>
        /^Answer: .*Nairobi: 22 °C/s.test(document.getElementById("announcer").textContent),
      );
    },
  ],
  [
    "several rounds, and a session that remembers",
    async ({ browser, server }) => {
      const page = await browser.open(server);
      await propose(page, server, "state of ticket 4711");
      const answer = await answered(page);
      assert.ok((await answer.locator(".call-name").allInnerTexts()).includes("get_ticket"));
      await say(page, "Hello, my name is Ada.");
      await answered(page, 2);
      await say(page, "What is my name?");
      assert.match(await (await answered(page, 3)).innerText(), /Ada/);
      await page.reload();
      await page.waitForFunction(() => document.querySelectorAll(".question").length === 3);
      assert.match(await page.locator(".answer").last().innerText(), /Ada/);
      await page.locator("#recent a[aria-current]").waitFor();
    },
  ],
  [
    "a plot and a file",
    async ({ browser, server, artefacts }) => {
      const page = await browser.open(server);
      await propose(page, server, "Plot the temperatures");
      const answer = await answered(page);
      await page.waitForFunction(() =>
        [...document.querySelectorAll(".plot")].some((image) => image.naturalWidth > 100),
      );
      assert.equal(await answer.locator(".plot").count(), 1, "the figure and its file are one picture");
      const download = page.waitForEvent("download");
      await answer.getByRole("button", { name: "Download temperatures.png" }).click();
      const file = await download;
      assert.equal(file.suggestedFilename(), "temperatures.png");
      assert.ok((await readFile(await file.path())).subarray(0, 4).equals(PNG));
      await answer.locator(".call", { hasText: "execute_python" }).locator("summary").click();
      await answer.getByText("Output").waitFor();
      assert.ok((await answer.locator(".hljs-keyword").count()) > 3, "the code has colours");
      await answer.locator(".call", { hasText: "execute_python" }).locator("summary").click();
      await answer.locator(".call").first().locator("summary").click();
      await page.mouse.move(0, 0);
      // The picture shows the whole answer, whatever the height of its chart.
      const hidden = await page.evaluate(() => {
        const scroller = document.querySelector(".scroller");
        return scroller.scrollHeight - scroller.clientHeight;
      });
      const { height } = page.viewportSize();
      await page.setViewportSize({ width: 1280, height: height + hidden });
      await page.locator(".scroller").dispatchEvent("scroll");
      await page.getByRole("button", { name: "Newest" }).waitFor({ state: "hidden" });
      await page.screenshot({ path: join(artefacts, "readme.png") });
    },
  ],
  [
    "what the server offers is on, and nothing is sent about it",
    async ({ browser, server }) => {
      const page = await browser.open(server);
      const sent = sentBy(page);
      await page.goto(`${server.url}/`);
      await page.locator(".suggestion").first().waitFor();
      const [python, web] = ["Python", "Web"].map((name) => page.getByRole("button", { name, exact: true }));
      for (const toggle of [python, web]) {
        assert.equal(await toggle.getAttribute("aria-pressed"), "true");
        assert.match(await toggle.getAttribute("title"), /offers this to every request/);
      }
      await say(page, "Plot the temperatures of Rome and Lima.");
      const answer = await answered(page);
      await answer.locator(".plot").waitFor();
      assert.deepEqual(
        ["enable_code_execution", "web_search_options", "agent_permission"].filter((name) => name in sent.at(-1)),
        [],
      );
      assert.deepEqual(sent.at(-1).agent, { on_disconnect: "finish" });
      await python.click();
      await say(page, "Plot the temperatures of Oslo and Lima.");
      await answered(page, 2);
      assert.equal(sent.at(-1).enable_code_execution, false);
    },
  ],
  [
    "sources",
    async ({ browser, server }) => {
      const page = await browser.open(server);
      await propose(page, server, "Who built the lighthouse");
      const answer = await answered(page);
      const sources = answer.locator(".cited a");
      assert.ok((await sources.count()) >= 2);
      for (const link of [...(await sources.all()), ...(await answer.locator(".citation a").all())]) {
        assert.equal(await link.getAttribute("rel"), "noopener noreferrer");
        assert.equal(await link.getAttribute("target"), "_blank");
      }
      assert.ok((await answer.locator(".citation").count()) >= 3);
      await page.reload();
      await page.locator(".cited a").first().waitFor();
      assert.ok((await page.locator(".citation").count()) >= 3, "marks are links after a reload, too");
    },
  ],
  [
    "a tool of an MCP server",
    async ({ browser, server }) => {
      const page = await browser.open(server);
      await propose(page, server, "high water in Velmouth");
      assert.match(await (await answered(page)).innerText(), /harbour__get_tides/);
    },
  ],
  [
    "an approval with other arguments",
    async ({ browser, server }) => {
      const page = await browser.open(server);
      await propose(page, server, "Please refund 4711");
      const card = page.getByRole("region", { name: "Decision about send_refund" });
      await card.waitFor();
      assert.match(await card.innerText(), /it costs money/);
      await page.locator("#nav .badge:not([hidden])").waitFor();
      const argument = card.getByRole("textbox", { name: "Arguments" });
      await argument.fill("{");
      await card.getByText("The arguments are not valid").waitFor();
      await argument.fill('{"wrong": 1}');
      await card.getByRole("button", { name: "Allow with these arguments" }).click();
      await card
        .getByText(/ticket_id|arguments/)
        .first()
        .waitFor();
      await argument.fill('{"ticket_id": "4712"}');
      await card.getByRole("button", { name: "Allow with these arguments" }).click();
      const answer = await answered(page);
      assert.match(await answer.innerText(), /12\.00 EUR for ticket 4712/);
    },
  ],
  [
    "a fork that edits a message",
    async ({ browser, server }) => {
      const page = await browser.open(server);
      await propose(page, server, "weather in Oslo and Nairobi");
      await answered(page);
      await say(page, "What is the weather in Paris?");
      await answered(page, 2);
      const before = page.url();
      await page.locator(".question").last().hover();
      await page.getByRole("button", { name: "Edit in a fork" }).last().click();
      await page.waitForURL((url) => url.href !== before);
      await page.waitForFunction(() => document.querySelectorAll(".question").length === 1);
      const message = page.getByRole("textbox", { name: "Message" });
      assert.equal(await message.inputValue(), "What is the weather in Paris?");
      await message.fill("What is the weather in Lima?");
      await page.getByRole("button", { name: "Send" }).click();
      assert.match(await (await answered(page, 2)).innerText(), /Lima: 19 °C/);
      await page.goto(before);
      await page.waitForFunction(() => document.querySelectorAll(".question").length === 2);
      assert.match(await page.locator(".answer").last().innerText(), /Paris/, "the first session stays as it was");
    },
  ],
  [
    "a telephone",
    async ({ browser, server }) => {
      const page = await browser.open(server, { width: 390, touch: true });
      await page.goto(`${server.url}/#/status`);
      await page.getByRole("button", { name: "Menu" }).tap();
      await page.getByRole("link", { name: "New chat" }).tap();
      await page.getByRole("button", { name: "Please refund 4711" }).tap();
      const card = page.getByRole("region", { name: "Decision about send_refund" });
      await card.getByRole("button", { name: "Allow once" }).tap();
      const answer = await answered(page);
      assert.match(await answer.innerText(), /25\.00 EUR/);
      await answer.locator(".call summary").tap();
      await answer.locator(".call .output").first().waitFor();
      await say(page, "What is the weather in Rome?");
      assert.match(await (await answered(page, 2)).innerText(), /Rome: 25 °C/);
    },
  ],
];
