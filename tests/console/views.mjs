// The other views, what they show as code, and every view in both schemes and at both widths.

import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { writeFile } from "node:fs/promises";
import { join } from "node:path";
import { promisify } from "node:util";

import { answered, say } from "./browser.mjs";
import { Server } from "./server.mjs";

const run = promisify(execFile);
/** Longest run of a snippet. */
const SNIPPET_TIME = 30_000;

/** The request as code, in each language. */
async function snippets(page) {
  const texts = {};
  for (const name of ["curl", "Python", "JavaScript"]) {
    await page.getByRole("tab", { name }).click();
    texts[name] = await page.getByRole("tabpanel").locator("code").innerText();
  }
  return texts;
}

async function runs(command, parts, options = {}) {
  const { stdout } = await run(command, parts, { timeout: SNIPPET_TIME, ...options });
  return stdout;
}

/** What makes a view, and what shows that it is there. */
const VIEWS = [
  ["chat", "#/chat", ".suggestion"],
  ["answer", "#/chat/shown", ".answer .turn-footer:not([hidden])"],
  ["approval", "#/chat/asked", ".approval"],
  ["sessions", "#/sessions", "tbody tr"],
  ["runs", "#/runs", "tbody tr"],
  ["approvals", "#/approvals", ".approval"],
  ["tools", "#/tools", ".tool-list li"],
  ["tool", "#/tools/echo", "form .field"],
  ["permissions", "#/permissions", "form .field"],
  ["status", "#/status", ".ready"],
];

async function ask(server, session, content) {
  const answer = await fetch(`${server.url}/v1/chat/completions`, {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: JSON.stringify({
      model: "scripted",
      session_id: session,
      agent: { on_disconnect: "finish" },
      messages: [{ role: "user", content }],
    }),
  });
  assert.equal(answer.status, 200, await answer.text());
}

export const cases = [
  [
    "tools, and a call of one",
    async ({ browser, server }) => {
      const page = await browser.open(server);
      await page.goto(`${server.url}/#/tools`);
      await page.getByRole("link", { name: "echo" }).click();
      await page.getByText("additionalProperties").waitFor();
      await page.getByRole("textbox", { name: "text required" }).fill("a direct call");
      await page.getByRole("spinbutton", { name: "times" }).fill("2");
      await page.getByRole("button", { name: "Call the tool" }).click();
      await page.locator(".call", { hasText: "done" }).waitFor();
      await page.locator(".call .output", { hasText: "a direct calla direct call" }).waitFor();
      await page.getByRole("button", { name: "Edit as JSON" }).click();
      const json = page.getByRole("textbox", { name: "Arguments as JSON" });
      assert.deepEqual(JSON.parse(await json.inputValue()), { text: "a direct call", times: 2 });
      await json.fill("{");
      await page.getByRole("button", { name: "Call the tool" }).click();
      await page.locator(".problem:not(:empty)").waitFor();
      await json.fill('{"text": "forbidden words"}');
      await page.getByRole("button", { name: "Call the tool" }).click();
      await page.locator(".call", { hasText: "denied" }).waitFor();
    },
  ],
  [
    "a server without direct calls says so",
    async ({ browser, server }) => {
      const page = await browser.open(server);
      const error = {
        error: { message: "this path does not exist", type: "invalid_request_error", param: null, code: "not_found" },
      };
      await page.route("**/v1/agent/tools/*/call", (route) => route.fulfill({ status: 404, json: error }));
      await page.goto(`${server.url}/#/tools/echo`);
      await page.getByRole("textbox", { name: "text required" }).fill("x");
      await page.getByRole("button", { name: "Call the tool" }).click();
      await page.getByText("This server cannot call tools directly.").waitFor();
    },
  ],
  [
    "permissions are explained",
    async ({ browser, server }) => {
      const page = await browser.open(server);
      await page.goto(`${server.url}/#/permissions/echo`);
      const text = page.getByRole("textbox", { name: "text required" });
      await text.fill("forbidden words");
      await page.getByRole("button", { name: "Explain" }).click();
      await page.locator('.decision[data-effect="deny"]', { hasText: "This word is forbidden." }).waitFor();
      await text.fill("fine words");
      await page.getByRole("button", { name: "Explain" }).click();
      await page.locator('.decision[data-effect="allow"]').waitFor();
      await page.getByRole("combobox", { name: "Tool" }).selectOption("pay");
      await page.getByRole("textbox", { name: "to required" }).fill("Ada");
      await page.getByRole("spinbutton", { name: "cents required" }).fill("5");
      await page.getByRole("button", { name: "Explain" }).click();
      await page.locator('.decision[data-effect="ask"]', { hasText: "Rule 0 of the server" }).waitFor();
      await page.getByRole("button", { name: "Show as code" }).click();
      const texts = await snippets(page);
      assert.match(await runs("bash", ["-c", texts.curl]), /"effect":"ask"/);
      assert.match(await runs(process.execPath, ["--input-type=module", "-e", texts.JavaScript]), /effect: 'ask'/);
      await runs("python3", ["-c", "import ast, sys; ast.parse(sys.argv[1])", texts.Python]);
    },
  ],
  [
    "a request as code is the same request",
    async ({ browser, server }) => {
      const page = await browser.open(server);
      await page.goto(`${server.url}/`);
      const text = `It's "quoted" $(touch /tmp/never) \`id\` \\ ünï \u2028 <b>`;
      await say(page, text);
      const answer = await answered(page);
      await answer.getByRole("button", { name: "Show as code" }).click();
      const texts = await snippets(page);
      await runs("python3", ["-c", "import ast, sys; ast.parse(sys.argv[1])", texts.Python]);
      const before = server.upstream.requests.length;
      assert.match(await runs("bash", ["-c", texts.curl]), /\[DONE\]/);
      assert.equal(server.upstream.requests.length, before + 1);
      assert.equal(server.upstream.requests.at(-1).messages.at(-1).content, text);
      await page.keyboard.press("Escape");
      await page.getByRole("dialog").waitFor({ state: "detached" });
    },
  ],
  [
    "status, address and figures",
    async ({ browser, server }) => {
      const page = await browser.open(server);
      await page.goto(`${server.url}/#/status`);
      await page.getByText("Ready: the server can answer.").waitFor();
      await page.getByRole("button", { name: "Copy address" }).click();
      await page.getByText("Copied").first().waitFor();
      assert.equal(await page.evaluate(() => navigator.clipboard.readText()), `${server.url}/v1`);
      const texts = await snippets(page);
      assert.match(texts.Python, new RegExp(`base_url="${server.url}/v1"`));
      assert.match(await runs("bash", ["-c", texts.curl]), /\[DONE\]/);
      await page.locator("tr", { hasText: "scripted" }).first().waitFor();
    },
  ],
  [
    "status of a server that is not ready",
    async ({ browser, server }) => {
      const page = await browser.open(server);
      const body = {
        status: "unavailable",
        upstream: "unreachable",
        upstreams: { default: { state: "unreachable" } },
        session_store: "ok",
        file_store: "ok",
      };
      await page.route("**/readyz", (route) => route.fulfill({ status: 503, json: body }));
      await page.goto(`${server.url}/#/status`);
      await page.getByText("Not ready: unavailable.").waitFor();
      await page.getByText("Model server default: unreachable").waitFor();
      await page.getByText("Check that the model server runs").waitFor();
      await page.getByRole("link", { name: "Status Model server default: unreachable" }).waitFor();
    },
  ],
  [
    "a model server that is gone",
    async ({ browser, binary, work }) => {
      const server = await Server.serve(binary, work, {});
      try {
        const page = await browser.open(server);
        await page.goto(`${server.url}/`);
        const light = page.locator("#nav .light");
        await page.getByRole("link", { name: "Status ready" }).waitFor();
        await page.locator("#model option", { hasText: "scripted" }).waitFor({ state: "attached" });
        const address = server.upstream.url;
        await server.upstream.close();
        const explained = async (place) => {
          await place.getByText(`Model server default at ${address}: unreachable`).waitFor();
          await place.getByText("Check that the model server runs").waitFor();
        };
        await say(page, "Are you there?");
        const error = page.locator(".answer .notice.error");
        await error.getByText("the model server cannot be reached").waitFor();
        await explained(error);
        assert.equal(await light.getAttribute("data-level"), "bad");
        assert.match(await light.getAttribute("aria-label"), /unreachable/);
        await browser.checkAccess(page, "an answer without a model server");
        await error.getByRole("link", { name: "Open Status" }).click();
        await explained(page.locator(".problems"));
        await page.goto(`${server.url}/#/chat`);
        await page.reload();
        await explained(page.locator(".composer .notice.error"));
        await page.locator("#model option", { hasText: "no model" }).waitFor({ state: "attached" });
      } finally {
        await server.stop();
      }
    },
  ],
  [
    "a server that is gone",
    async ({ browser, server }) => {
      const page = await browser.open(server);
      await page.goto(`${server.url}/`);
      await page.getByRole("textbox", { name: "Message" }).waitFor();
      await page.route("**/v1/**", (route) => route.abort());
      await page.goto(`${server.url}/#/sessions`);
      await page.getByText("The server cannot be reached.").waitFor();
      await page.unroute("**/v1/**");
      await page.getByRole("button", { name: "Try again" }).click();
      await page.locator("tbody tr, .empty").first().waitFor();
    },
  ],
  [
    "every view, in both schemes, at both widths",
    async ({ browser, server, artefacts }) => {
      await ask(server, "shown", 'call echo {"text": "# A *text*\\n\\n- one\\n- two\\n\\n```python\\nprint(1)\\n```"}');
      await ask(server, "asked", 'call pay {"to": "Ada", "cents": 500}');
      for (const scheme of ["light", "dark"]) {
        for (const width of [1280, 390]) {
          const page = await browser.open(server, { width, scheme });
          for (const [name, hash, sign] of VIEWS) {
            await page.goto(`${server.url}/${hash}`);
            await page.locator(sign).first().waitFor();
            if (name === "answer") await page.locator(".call summary").first().click();
            await page.evaluate(() => document.fonts.ready);
            await browser.checkAccess(page, `${name}, ${scheme}, ${width} px`);
            const wide = await page.evaluate(
              () =>
                document.documentElement.scrollWidth > innerWidth ||
                document.querySelector("main").scrollWidth > document.querySelector("main").clientWidth,
            );
            assert.ok(!wide, `${name} fits into ${width} px`);
            await page.screenshot({ path: join(artefacts, `${name}-${width}-${scheme}.png`) });
          }
          if (width === 390) {
            await page.getByRole("button", { name: "Menu" }).click();
            await page.getByRole("link", { name: "Sessions" }).waitFor();
            await browser.checkAccess(page, `menu, ${scheme}`);
            await page.screenshot({ path: join(artefacts, `menu-390-${scheme}.png`) });
            await page.keyboard.press("Escape");
          }
          await browser.checkPages();
          await browser.closePages();
        }
      }
      await writeFile(
        join(artefacts, "README.txt"),
        "Pictures of the console: VIEW-WIDTH-SCHEME.png; readme.png is the one for the README.\n",
      );
    },
  ],
];
