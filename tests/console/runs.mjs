// Runs: stopped, reloaded, watched, decided about; sessions with much in them.

import assert from "node:assert/strict";
import { readFile } from "node:fs/promises";

import { answered, say, tabTo } from "./browser.mjs";

async function put(server, id, messages) {
  const answer = await fetch(`${server.url}/v1/sessions/${id}`, {
    method: "PUT",
    headers: { "content-type": "application/json" },
    body: JSON.stringify({ messages }),
  });
  assert.equal(answer.status, 201, await answer.text());
}

async function ask(server, session, content, agent) {
  const answer = await fetch(`${server.url}/v1/chat/completions`, {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: JSON.stringify({ model: "scripted", session_id: session, agent, messages: [{ role: "user", content }] }),
  });
  assert.equal(answer.status, 200, await answer.text());
}

const cardsOf = (page) => page.getByRole("region", { name: "Decision about pay" });

/** What the heads of the calls say. */
const states = (page) => page.locator(".call-state").allInnerTexts();

const TIMED = { denied: /^denied · \d+ ms$/, done: /^done · \d+ ms$/ };

const shows = (page, text) =>
  page.waitForFunction((wanted) => document.querySelector(".answer:last-child")?.textContent.includes(wanted), text);

export const cases = [
  [
    "a stop in mid-stream",
    async ({ browser, server }) => {
      const page = await browser.open(server);
      await page.goto(`${server.url}/`);
      await say(page, "gate:stop");
      await shows(page, "The first half.");
      await page.getByRole("button", { name: "Stop" }).click();
      const answer = await answered(page);
      assert.match(await answer.innerText(), /The run was stopped\./);
      assert.doesNotMatch(await answer.innerText(), /second half/);
      await say(page, "Still there?");
      assert.match(await (await answered(page, 2)).innerText(), /You said: Still there\?/);
    },
  ],
  [
    "a reload in mid-run comes back to the running answer",
    async ({ browser, server }) => {
      const page = await browser.open(server);
      await page.goto(`${server.url}/`);
      await say(page, "A question before.");
      await answered(page);
      await say(page, "gate:reload");
      await shows(page, "The first half.");
      await server.upstream.gate("reload").reached;
      await page.reload();
      await shows(page, "The first half.");
      assert.equal(await page.locator(".question").count(), 2);
      assert.equal(await page.locator(".answer").count(), 2);
      server.upstream.gate("reload").open();
      assert.match(await (await answered(page, 2)).innerText(), /The first half\. The second half\./);
      await page.reload();
      await page.waitForFunction(() => document.querySelectorAll(".answer .turn-footer:not([hidden])").length === 2);
      assert.deepEqual(await page.locator(".question-text").allInnerTexts(), ["A question before.", "gate:reload"]);
    },
  ],
  [
    "a reload in the first run of a session",
    async ({ browser, server }) => {
      const page = await browser.open(server);
      await page.goto(`${server.url}/`);
      await say(page, "gate:first");
      await shows(page, "The first half.");
      await page.reload();
      await shows(page, "The first half.");
      assert.deepEqual(await page.locator(".question-text").allInnerTexts(), ["gate:first"]);
      server.upstream.gate("first").open();
      assert.match(await (await answered(page)).innerText(), /The second half\./);
    },
  ],
  [
    "a run goes on while another view is open",
    async ({ browser, server }) => {
      const page = await browser.open(server);
      await page.goto(`${server.url}/`);
      await say(page, "gate:away");
      await shows(page, "The first half.");
      await page.getByRole("link", { name: "Runs" }).click();
      await page.locator("tr", { hasText: "running" }).first().locator("a").first().click();
      await page.locator(".run-answer", { hasText: "The first half." }).waitFor();
      server.upstream.gate("away").open();
      await page.locator(".run-answer", { hasText: "The second half." }).waitFor();
      await page.locator(".facts", { hasText: "completed" }).waitFor();
      await page.locator(".event-type", { hasText: "end" }).waitFor();
      await page.locator(".events summary").first().click();
      await page.locator(".events .output").first().waitFor();
    },
  ],
  [
    "a run that waits for a decision is stopped",
    async ({ browser, server }) => {
      const content = 'call pay {"to": "Ada", "cents": 5}';
      const messages = [{ role: "user", content }];
      const started = await fetch(`${server.url}/v1/chat/completions`, {
        method: "POST",
        headers: { "content-type": "application/json" },
        body: JSON.stringify({ model: "scripted", session_id: "stopped", agent: { background: true }, messages }),
      });
      assert.equal(started.status, 202, await started.clone().text());
      const { id } = await started.json();
      for (let run = {}; !run.approvals?.length;) {
        const answer = await fetch(`${server.url}/v1/chat/completions/${id}`);
        assert.equal(answer.status, 202);
        run = await answer.json();
      }
      const page = await browser.open(server);
      await page.goto(`${server.url}/#/runs/${id}`);
      await page.locator(".facts", { hasText: "waits for 1 decision" }).waitFor();
      await page.getByRole("button", { name: "Stop" }).click();
      await page.locator(".facts", { hasText: "cancelled" }).waitFor();
      const list = await (await fetch(`${server.url}/v1/agent/approvals`)).json();
      assert.ok(list.data.every((approval) => approval.run_id !== id));
    },
  ],
  [
    "a connection that is lost is made again",
    async ({ browser, server }) => {
      const page = await browser.open(server);
      await page.goto(`${server.url}/`);
      // The first answer breaks off after what has come so far; what follows is the server's.
      await page.evaluate(() => {
        const whole = window.fetch;
        let isFirst = true;
        window.fetch = async (...parts) => {
          const answer = await whole(...parts);
          if (!String(parts[0]).endsWith("/chat/completions") || !isFirst) return answer;
          isFirst = false;
          const reader = answer.body.getReader();
          const cut = new ReadableStream({
            async pull(controller) {
              const { value } = await reader.read();
              controller.enqueue(value);
              if (new TextDecoder().decode(value).includes("first half")) {
                await reader.cancel();
                controller.error(new TypeError("network error"));
              }
            },
          });
          return new Response(cut, { status: answer.status, headers: answer.headers });
        };
      });
      await say(page, "gate:lost");
      await shows(page, "The first half.");
      server.upstream.gate("lost").open();
      const text = await (await answered(page)).locator(".prose").innerText();
      assert.equal(text.trim(), "The first half. The second half.", "nothing is missing, and nothing comes twice");
    },
  ],
  [
    "deny with a reason, and allow for the session",
    async ({ browser, server }) => {
      const page = await browser.open(server);
      await page.goto(`${server.url}/`);
      await say(page, 'call pay {"to": "Ada", "cents": 5}');
      const card = page.getByRole("region", { name: "Decision about pay" });
      await card.getByRole("textbox", { name: "Reason" }).fill("Not on a Thursday.");
      await card.getByRole("button", { name: "Deny" }).click();
      const denied = await answered(page);
      assert.match(await denied.innerText(), /denied/);
      assert.match(await denied.innerText(), /Not on a Thursday\./);
      await say(page, 'call pay {"to": "Ada", "cents": 6}');
      await card.getByRole("combobox").selectOption("tool");
      await card.getByRole("button", { name: "Allow for this session" }).click();
      assert.match(await (await answered(page, 2)).innerText(), /"paid":6/);
      await say(page, 'call pay {"to": "Bo", "cents": 7}');
      assert.match(await (await answered(page, 3)).innerText(), /"paid":7/, "the third call does not ask");
    },
  ],
  [
    "a denied call stays denied while another one waits",
    async ({ browser, server }) => {
      const page = await browser.open(server);
      // The answers to decisions come after the events of the run.
      await page.route("**/v1/agent/approvals/*", async (route) => {
        const response = await route.fetch();
        await new Promise((resolve) => setTimeout(resolve, 700));
        await route.fulfill({ response });
      });
      await page.goto(`${server.url}/`);
      await say(page, "two payments");
      await cardsOf(page).nth(1).waitFor();
      await page
        .locator(".call")
        .first()
        .evaluate((call) => {
          window.seen = [];
          const note = () => window.seen.push(call.dataset.status);
          new MutationObserver(note).observe(call, { attributeFilter: ["data-status"] });
        });
      await cardsOf(page).first().getByRole("button", { name: "Deny" }).click();
      await page.waitForFunction(() => document.getElementById("announcer").textContent === "Denied: pay.");
      const [first, second] = await states(page);
      assert.match(first, TIMED.denied);
      assert.equal(second, "waits for you");
      assert.equal(await page.locator(".working").innerText(), "Waiting for your decision");
      await cardsOf(page).getByRole("button", { name: "Allow once" }).click();
      await answered(page);
      await page.waitForFunction(() => document.getElementById("announcer").textContent === "Allowed: pay.");
      const ended = await states(page);
      assert.match(ended[0], TIMED.denied);
      assert.match(ended[1], TIMED.done);
      assert.ok(!(await page.evaluate(() => window.seen)).includes("running"));
    },
  ],
  [
    "a session that waits is marked in every list, and its states outlive a reload",
    async ({ browser, server }) => {
      const page = await browser.open(server);
      await page.goto(`${server.url}/`);
      await say(page, "two payments");
      await cardsOf(page).nth(1).waitFor();
      await page.reload();
      await cardsOf(page).nth(1).waitFor();
      const reason = cardsOf(page).first().getByRole("textbox", { name: "Reason" });
      await reason.press("Enter");
      assert.equal(await cardsOf(page).count(), 2, "Enter without a reason decides nothing");
      await reason.fill("Not Ada.");
      await reason.press("Enter");
      await page.locator('.call[data-status="denied"]').waitFor();
      assert.equal((await states(page))[1], "waits for you");
      assert.equal(await page.locator(".working").innerText(), "Waiting for your decision");
      const id = decodeURIComponent(page.url().split("/").pop());
      await page.locator(`#recent li:has(a[data-part="${id}"]) .badge`, { hasText: "waits for you" }).waitFor();
      assert.equal(await page.locator(`#recent a[data-part="${id}"] .running-dot`).count(), 0);
      await page.getByRole("link", { name: "Sessions" }).click();
      const row = page.getByRole("main").locator("tr", { has: page.locator(`a[href="#/chat/${id}"]`) });
      await row.locator(".badge", { hasText: "waits for you" }).waitFor();
      assert.doesNotMatch(await row.innerText(), /running/);
      await browser.checkAccess(page, "a session that waits");
      await page.getByRole("link", { name: "Runs" }).click();
      await row.locator(".badge", { hasText: "waits for you" }).waitFor();
      assert.doesNotMatch(await row.innerText(), /running|ended/);
      await row.getByRole("link").first().click();
      await page.locator(".facts", { hasText: "waits for 1 decision" }).waitFor();
      await page.locator('.call[data-status="denied"]').waitFor();
      assert.equal((await states(page))[1], "waits for you");
      await cardsOf(page).getByRole("button", { name: "Allow once" }).click();
      await page.locator(".facts", { hasText: "completed" }).waitFor();
      const ended = await states(page);
      assert.match(ended[0], TIMED.denied);
      assert.match(ended[1], TIMED.done);
      await page.getByRole("link", { name: "Sessions" }).click();
      await row.waitFor();
      assert.doesNotMatch(await row.innerText(), /waits for you|running/);
      await page.goto(`${server.url}/#/chat/${id}`);
      await answered(page);
      await page.locator('.call[data-status="ok"]').waitFor();
      assert.match((await states(page))[0], TIMED.denied);
      assert.equal(await page.locator("#recent .badge").count(), 0);
    },
  ],
  [
    "the number of calls that wait, and lists that others change",
    async ({ browser, server }) => {
      const page = await browser.open(server);
      await page.goto(`${server.url}/`);
      await say(page, "two payments");
      await cardsOf(page).nth(1).waitFor();
      const other = await browser.tab(page, server);
      await other.goto(`${server.url}/#/sessions`);
      const marks = other.getByRole("main").locator(".badge", { hasText: "waits for you" });
      await marks.waitFor();
      await page.getByRole("link", { name: "Approvals" }).click();
      await page.getByText("2 calls wait for a decision.").waitFor();
      const cards = page.getByRole("main").locator(".approval:not(.decided)");
      await cards.first().getByRole("button", { name: "Deny" }).click();
      await page.locator("#nav .badge", { hasText: "1" }).waitFor();
      await page.getByText("1 call waits for a decision.").waitFor();
      await cards.getByRole("button", { name: "Allow once" }).click();
      await page.getByText("No call waits for a decision.").waitFor();
      // Another tab learns of it when it comes to the front.
      await other.evaluate(() => document.dispatchEvent(new Event("visibilitychange")));
      await marks.waitFor({ state: "detached" });
      await other.close();
    },
  ],
  [
    "a call of a turn without a session",
    async ({ browser, server }) => {
      const left = new AbortController();
      const body = {
        model: "scripted",
        stream: true,
        store: false,
        messages: [{ role: "user", content: 'call pay {"to": "Gil", "cents": 14}' }],
      };
      const answer = await fetch(`${server.url}/v1/chat/completions`, {
        method: "POST",
        headers: { "content-type": "application/json" },
        body: JSON.stringify(body),
        signal: left.signal,
      });
      assert.equal(answer.status, 200);
      const page = await browser.open(server);
      await page.goto(`${server.url}/#/approvals`);
      await page.getByRole("link", { name: "Open its run" }).waitFor();
      assert.equal(await page.getByRole("link", { name: "Open its session" }).count(), 0);
      await page.getByRole("button", { name: "Deny" }).click();
      await page.getByText("No call waits for a decision.").waitFor();
      left.abort();
    },
  ],
  [
    "Escape stops an answer, and nothing else does by accident",
    async ({ browser, server }) => {
      const page = await browser.open(server, { width: 390 });
      await page.goto(`${server.url}/`);
      await say(page, "gate:escape");
      await shows(page, "The first half.");
      await page.getByRole("button", { name: "Menu" }).click();
      await page.keyboard.press("Escape");
      await page.locator(".side.open").waitFor({ state: "detached" });
      await page.getByRole("button", { name: "Delete" }).click();
      await page.getByRole("dialog").waitFor();
      await page.keyboard.press("Escape");
      await page.getByRole("dialog").waitFor({ state: "detached" });
      assert.equal(await page.locator(".working").innerText(), "Writing");
      await page.getByRole("textbox", { name: "Message" }).press("Escape");
      assert.match(await (await answered(page)).innerText(), /The run was stopped\./);
    },
  ],
  [
    "a question before a deletion",
    async ({ browser, server }) => {
      await put(server, "careful", [{ role: "user", content: "Do not lose me" }]);
      const page = await browser.open(server);
      await page.goto(`${server.url}/#/sessions`);
      await page.getByRole("button", { name: "Delete Do not lose me" }).press("Enter");
      await page.getByRole("dialog").waitFor();
      assert.equal(await page.evaluate(() => document.activeElement.textContent), "Cancel");
      await page.keyboard.press("Enter");
      await page.getByRole("dialog").waitFor({ state: "detached" });
      assert.equal((await fetch(`${server.url}/v1/sessions/careful`)).status, 200);
      await page.keyboard.press("Enter");
      await tabTo(page, ".dialog .danger");
      await page.keyboard.press("Enter");
      await page.getByText("Do not lose me").first().waitFor({ state: "detached" });
      assert.equal((await fetch(`${server.url}/v1/sessions/careful`)).status, 404);
    },
  ],
  [
    "a decision in the list of all",
    async ({ browser, server }) => {
      const page = await browser.open(server);
      await page.goto(`${server.url}/`);
      await say(page, 'call pay {"to": "Cy", "cents": 8}');
      await page.getByRole("region", { name: "Decision about pay" }).waitFor();
      await page.getByRole("link", { name: "Approvals" }).click();
      const card = page.getByRole("main").getByRole("region", { name: "Decision about pay" });
      await card.getByRole("button", { name: "Allow once" }).click();
      await card.getByText("Allowed: pay").waitFor();
      await page.getByRole("link", { name: "Open its session" }).click();
      assert.match(await (await answered(page)).innerText(), /"paid":8/);
    },
  ],
  [
    "a reload while a call waits",
    async ({ browser, server }) => {
      const page = await browser.open(server);
      await page.goto(`${server.url}/`);
      await say(page, 'call pay {"to": "Eve", "cents": 11}');
      const card = page.getByRole("region", { name: "Decision about pay" });
      await card.waitFor();
      await page.reload();
      await card.getByRole("button", { name: "Allow once" }).click();
      assert.match(await (await answered(page)).innerText(), /"paid":11/);
      assert.equal(await page.locator(".question").count(), 1);
    },
  ],
  [
    "a decision about a run that nobody reads",
    async ({ browser, server }) => {
      for (const [session, agent, cents] of [
        ["recorded", { on_disconnect: "finish" }, 12],
        ["plain", undefined, 13],
      ]) {
        await ask(server, session, `call pay {"to": "Flo", "cents": ${cents}}`, agent);
        const page = await browser.open(server);
        await page.goto(`${server.url}/#/chat/${session}`);
        await page
          .getByRole("region", { name: "Decision about pay" })
          .getByRole("button", { name: "Allow once" })
          .click();
        await page
          .locator(".answer", { hasText: `"paid":${cents}` })
          .last()
          .waitFor();
        await answered(page);
        await page.reload();
        await page.locator(".answer", { hasText: `"paid":${cents}` }).waitFor();
      }
    },
  ],
  [
    "two decisions about a run that nobody reads",
    async ({ browser, server }) => {
      for (const [session, agent] of [
        ["two-recorded", { on_disconnect: "finish" }],
        ["two-plain", undefined],
      ]) {
        await ask(server, session, "two payments", agent);
        const page = await browser.open(server);
        await page.goto(`${server.url}/#/chat/${session}`);
        await cardsOf(page).nth(1).waitFor();
        if (agent) {
          await cardsOf(page).first().getByRole("button", { name: "Allow once" }).click();
          await page.locator(".approval.decided", { hasText: "Allowed: pay" }).waitFor();
        } else {
          // Somebody else is faster.
          const { data } = await (await fetch(`${server.url}/v1/agent/approvals`)).json();
          const first = data.find((one) => one.session_id === session);
          const decided = await fetch(`${server.url}/v1/agent/approvals/${first.approval_id}`, {
            method: "POST",
            headers: { "content-type": "application/json" },
            body: JSON.stringify({ decision: "approve" }),
          });
          assert.equal(decided.status, 200);
          await cardsOf(page).first().getByRole("button", { name: "Deny" }).click();
          await page.getByText("This call is decided already").waitFor();
        }
        const [first, second] = await states(page);
        assert.match(first, agent ? /^allowed$/ : /^(allowed|decided)$/);
        assert.equal(second, "waits for you");
        await page.reload();
        await cardsOf(page).waitFor();
        assert.match((await states(page))[0], /^(allowed|decided)$/, "a decided call asks no more");
        await cardsOf(page).getByRole("button", { name: "Deny" }).click();
        await page.locator(".answer", { hasText: "The tool said" }).waitFor();
        for (const reload of [false, true]) {
          if (reload) await page.reload();
          await answered(page);
          await page.locator('.call[data-status="denied"]').waitFor();
          const ended = await states(page);
          assert.equal(ended.length, 2, "each call is shown once");
          assert.match(ended[0], TIMED.done);
          assert.match(ended[1], TIMED.denied);
        }
      }
    },
  ],
  [
    "a request that fails gives its message back",
    async ({ browser, server }) => {
      const page = await browser.open(server);
      await page.goto(`${server.url}/`);
      const error = {
        error: {
          message: "the session is busy; try again later",
          type: "invalid_request_error",
          param: null,
          code: "session_busy",
        },
      };
      await page.route("**/v1/chat/completions", (route) => route.fulfill({ status: 409, json: error }));
      await say(page, "Not now?");
      await page.getByText("the session is busy").first().waitFor();
      assert.equal(await page.getByRole("textbox", { name: "Message" }).inputValue(), "Not now?");
      await page.unroute("**/v1/chat/completions");
      await page.getByRole("button", { name: "Send" }).click();
      assert.match(await (await answered(page, 2)).innerText(), /You said: Not now\?/);
    },
  ],
  [
    "ask first: every call waits",
    async ({ browser, server }) => {
      const page = await browser.open(server);
      await page.goto(`${server.url}/`);
      await page.getByRole("button", { name: "Ask first" }).click();
      await say(page, 'call echo {"text": "asked"}');
      const card = page.getByRole("region", { name: "Decision about echo" });
      await card.getByRole("button", { name: "Allow once" }).click();
      assert.match(await (await answered(page)).innerText(), /asked/);
    },
  ],
  [
    "a session of 2,000 messages",
    async ({ browser, server }) => {
      const messages = [];
      for (let number = 0; number < 1000; number += 1) {
        messages.push({ role: "user", content: `Question ${number}` });
        messages.push({
          role: "assistant",
          content: `Answer **${number}** with \`code\`.\n\n- one\n- two\n\n| a | b |\n|---|---|\n| ${number} | x |`,
        });
      }
      await put(server, "long", messages);
      const page = await browser.open(server);
      const begun = performance.now();
      await page.goto(`${server.url}/#/chat/long`);
      await page.getByText("Answer 999").waitFor();
      const shown = performance.now() - begun;
      assert.ok(shown < 8000, `the end of a long session is shown in time, not after ${shown} ms`);
      assert.ok((await page.locator(".turn").count()) <= 60);
      await say(page, "And one more");
      await page.waitForFunction(() =>
        document.querySelector(".answer:last-child")?.textContent.includes("You said: And one more"),
      );
      await page.locator(".scroller").evaluate((element) => (element.scrollTop = 0));
      await page.getByRole("button", { name: "Show more" }).click();
      await page.waitForFunction(() => document.querySelectorAll(".turn").length > 100);
      await page.getByRole("button", { name: "Show all" }).click();
      await page.waitForFunction(() => document.querySelectorAll(".turn").length === 2002);
      const typed = await page.evaluate(async () => {
        const start = performance.now();
        const box = document.getElementById("message");
        for (const letter of "still quick") {
          box.value += letter;
          box.dispatchEvent(new Event("input"));
          await new Promise((resolve) => requestAnimationFrame(resolve));
        }
        return performance.now() - start;
      });
      assert.ok(typed < 5000, `typing stays usable, not ${typed} ms`);
    },
  ],
  [
    "files go along with a message",
    async ({ browser, server }) => {
      const page = await browser.open(server);
      await page.goto(`${server.url}/`);
      const chooser = page.waitForEvent("filechooser");
      await page.getByRole("button", { name: "Attach files" }).click();
      await (await chooser).setFiles({ name: "notes.txt", mimeType: "text/plain", buffer: Buffer.from("a note") });
      await page.getByText("notes.txt").waitFor();
      await say(page, "Look at this");
      assert.match(await (await answered(page)).innerText(), /You said: /);
      const sent = server.upstream.requests.at(-1).messages.at(-1);
      assert.match(JSON.stringify(sent), /Look at this/);
      const attached = page.locator(".question p", { hasText: "notes.txt" });
      await attached.waitFor();
      await page.reload();
      await attached.waitFor();
      const before = page.url();
      await page.getByRole("button", { name: "Fork", exact: true }).click();
      await page.waitForURL((url) => url.href !== before);
      await attached.waitFor();
    },
  ],
  [
    "export, import and delete",
    async ({ browser, server }) => {
      await put(server, "keepsake", [
        { role: "user", content: "Keep me" },
        { role: "assistant", content: "Kept." },
      ]);
      const page = await browser.open(server);
      await page.goto(`${server.url}/#/sessions`);
      const download = page.waitForEvent("download");
      await page.getByRole("button", { name: "Export Keep me" }).click();
      const exported = await (await download).path();
      assert.equal(JSON.parse(await readFile(exported, "utf8")).messages.length, 2);
      await page.getByRole("button", { name: "Delete Keep me" }).click();
      await page.getByRole("dialog").getByRole("button", { name: "Delete" }).click();
      await page.getByText("Keep me").first().waitFor({ state: "detached" });
      assert.equal((await fetch(`${server.url}/v1/sessions/keepsake`)).status, 404);
      const chooser = page.waitForEvent("filechooser");
      await page.getByRole("button", { name: "Import" }).click();
      await (await chooser).setFiles(exported);
      await page.waitForURL(/#\/chat\/import-/);
      await page.locator(".answer", { hasText: "Kept." }).waitFor();
    },
  ],
  [
    "the keyboard alone",
    async ({ browser, server }) => {
      const page = await browser.open(server);
      await page.goto(`${server.url}/#/status`);
      await page.getByText("Ready: the server can answer.").waitFor();
      await tabTo(page, ".skip");
      await page.keyboard.press("Enter");
      assert.equal(await page.evaluate(() => document.activeElement.id), "main");
      await tabTo(page, '#nav a[href="#/chat"]', { back: true });
      await page.keyboard.press("Enter");
      await page.waitForFunction(() => document.activeElement?.id === "message");
      await page.keyboard.type('call pay {"to": "Dee", "cents": 9}');
      await page.keyboard.press("Enter");
      await page.getByRole("region", { name: "Decision about pay" }).waitFor();
      await tabTo(page, ".approval textarea", { back: true });
      await page.keyboard.press("Control+a");
      await page.keyboard.type('{"to": "Dee", "cents": 10}');
      await tabTo(page, ".approval .button.primary");
      await page.keyboard.press("Enter");
      const answer = await answered(page);
      assert.match(await answer.innerText(), /"paid":10/);
      await tabTo(page, ".call summary", { back: true });
      await page.keyboard.press("Enter");
      await answer.locator(".call[open] .output").first().waitFor();
      await tabTo(page, ".view-actions .button", { back: true });
      await tabTo(page, "#theme", { back: true });
      await page.keyboard.press("Enter");
      assert.equal(await page.evaluate(() => document.documentElement.dataset.theme), "light");
      await page.keyboard.press("Space");
      assert.equal(await page.evaluate(() => document.documentElement.dataset.theme), "dark");
      await page.reload();
      assert.equal(await page.evaluate(() => document.documentElement.dataset.theme), "dark");
    },
  ],
];
