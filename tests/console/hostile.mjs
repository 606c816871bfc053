// A model and tools that mean harm: nothing they say is markup, nothing they name is fetched, nothing they send is too long.

import assert from "node:assert/strict";

import { answered, say } from "./browser.mjs";
import { LINE } from "./upstream.mjs";

/** What a text of a model or a tool may have become. */
async function checkMarkup(page) {
  const found = await page.evaluate(() => {
    const inside = document.querySelectorAll(".turn *, .result *, .calls *");
    const bad = [];
    for (const element of inside) {
      if (
        [
          "SCRIPT",
          "IFRAME",
          "OBJECT",
          "EMBED",
          "STYLE",
          "LINK",
          "FORM",
          "BASE",
          "META",
          "MATH",
          "AUDIO",
          "VIDEO",
          "SOURCE",
        ].includes(element.tagName)
      )
        bad.push(element.outerHTML.slice(0, 200));
      if (element.tagName === "IMG" && !/^(data:image\/png;base64,|blob:)/.test(element.src))
        bad.push(element.outerHTML.slice(0, 200));
      for (const { name, value } of element.attributes) {
        if (
          /^on/i.test(name) ||
          name === "style" ||
          name === "srcdoc" ||
          /javascript:|vbscript:/i.test(name === "href" || name === "src" || name === "action" ? value : "")
        )
          bad.push(element.outerHTML.slice(0, 200));
      }
      if (element.tagName === "A" && element.hasAttribute("href") && !element.getAttribute("href").startsWith("#")) {
        if (
          !/^(https?|mailto):/.test(element.href) ||
          element.target !== "_blank" ||
          element.rel !== "noopener noreferrer"
        )
          bad.push(element.outerHTML.slice(0, 200));
      }
    }
    return bad;
  });
  assert.deepEqual(found, []);
}

/** The page still answers, soon. */
async function checkAlive(page) {
  const late = await page.evaluate(async () => {
    const start = performance.now();
    await new Promise((resolve) => requestAnimationFrame(() => setTimeout(resolve)));
    return performance.now() - start;
  });
  assert.ok(late < 2000, `the page answers soon, not after ${late} ms`);
}

export const cases = [
  [
    "markup of the model",
    async ({ browser, server }) => {
      const page = await browser.open(server);
      await page.goto(`${server.url}/`);
      await say(page, "markup <img src=x onerror=pwn()>");
      const answer = await answered(page);
      const text = await answer.innerText();
      assert.match(text, /<script>pwn\(\)<\/script>/, "markup is shown as text");
      assert.match(text, /Image: remote picture/);
      assert.equal(await answer.locator("img").count(), 0);
      assert.equal(
        await answer.getByRole("link", { name: "good link" }).getAttribute("href"),
        "https://example.org/a?b=1&c=2",
      );
      for (const name of ["script link", "data link", "vb link", "html link"])
        assert.equal(await answer.getByRole("link", { name }).count(), 0, name);
      await checkMarkup(page);
      await page.reload();
      await page.locator(".answer", { hasText: "good link" }).waitFor();
      await checkMarkup(page);
      await page.goto(`${server.url}/#/sessions`);
      await page.getByText("markup <img").first().waitFor();
    },
  ],
  [
    "reasoning is text",
    async ({ browser, server }) => {
      const page = await browser.open(server);
      await page.goto(`${server.url}/`);
      await say(page, "reasoning");
      const answer = await answered(page);
      await answer.getByText("Reasoning").click();
      await answer.getByText("<img src=x onerror=pwn()>").waitFor();
      await checkMarkup(page);
    },
  ],
  [
    "a tool with markup, pictures and files",
    async ({ browser, server }) => {
      const page = await browser.open(server);
      await page.goto(`${server.url}/`);
      await say(page, 'call nasty {"text": "<svg onload=pwn()>"}');
      const answer = await answered(page);
      await answer.locator(".call summary").click();
      await answer.locator(".call .output").first().waitFor();
      await answer.locator(".file-name", { hasText: ".svg" }).waitFor();
      assert.equal(
        await answer.locator(".file", { hasText: ".svg" }).locator("img").count(),
        0,
        "a drawing is not shown",
      );
      await page.waitForFunction(() =>
        [...document.querySelectorAll(".answer .plot")].some((one) => one.naturalWidth === 1),
      );
      await checkMarkup(page);
      const download = page.waitForEvent("download");
      await answer.locator(".file", { hasText: "page.html" }).getByRole("button").click();
      await (await download).path();
      await page.reload();
      await page.locator(".call summary").first().click();
      await page.locator(".call .output").first().waitFor();
      await checkMarkup(page);
      await page.goto(`${server.url}/#/tools/nasty`);
      await page.getByText("<img src=x onerror=pwn()> **bold**").waitFor();
    },
  ],
  [
    "an approval that means harm",
    async ({ browser, server }) => {
      const page = await browser.open(server);
      await page.goto(`${server.url}/`);
      // The direction of the text is turned, so that another receiver would be read.
      await say(page, `call pay {"to": "\u202eadA<b onclick=pwn()>\u200b\ufe0f", "cents": 5}`);
      const card = page.getByRole("region", { name: "Decision about pay" });
      await card.getByText("<b onclick=pwn()>This moves money.</b>").waitFor();
      const shown = await card.getByRole("textbox", { name: "Arguments" }).inputValue();
      assert.match(shown, /\\u202eadA/);
      assert.match(shown, /\\u200b\\ufe0f/);
      await checkMarkup(page);
      await card.getByRole("button", { name: "Allow once" }).click();
      await answered(page);
      assert.equal(
        server.tools.calls.at(-1).arguments.to,
        "\u202eadA<b onclick=pwn()>\u200b\ufe0f",
        "what was shown is what runs",
      );
    },
  ],
  [
    "long numbers are shown and sent as they are",
    async ({ browser, server }) => {
      const page = await browser.open(server);
      await page.goto(`${server.url}/`);
      await say(page, 'call pay {"to": "Ada", "cents": 9007199254740993}');
      const card = page.getByRole("region", { name: "Decision about pay" });
      const box = card.getByRole("textbox", { name: "Arguments" });
      await card.waitFor();
      assert.match(await box.inputValue(), /9007199254740993/);
      await box.fill('{"to": "Bo", "cents": 9007199254740993}');
      await card.getByRole("button", { name: "Allow with these arguments" }).click();
      await answered(page);
      assert.match(server.tools.last, /9007199254740993/);
    },
  ],
  [
    "a line of a megabyte from the model",
    async ({ browser, server }) => {
      const page = await browser.open(server);
      await page.goto(`${server.url}/`);
      await say(page, "long line");
      const answer = await answered(page);
      await checkAlive(page);
      assert.ok((await answer.innerText()).length < 20_000, "only the beginning is shown");
      await answer.getByRole("button", { name: /^Show all/ }).click();
      await page.waitForFunction(
        (length) => document.querySelector(".answer pre").textContent.length === length,
        LINE.length,
      );
      await checkAlive(page);
    },
  ],
  [
    "lines of a megabyte from a tool",
    async ({ browser, server }) => {
      const page = await browser.open(server);
      await page.goto(`${server.url}/`);
      await say(page, "call flood");
      const answer = await answered(page);
      await answer.locator(".call summary").click();
      await answer.locator(".call .output").first().waitFor();
      await checkAlive(page);
      await page.reload();
      await page.locator(".call summary").click();
      await page
        .getByRole("button", { name: /^Show all/ })
        .first()
        .click();
      await page.waitForFunction(
        (length) => document.querySelector('.call pre[aria-label="Result"]').textContent.length >= length,
        LINE.length,
      );
      await checkAlive(page);
    },
  ],
  [
    "a text that is slow to render",
    async ({ browser, server }) => {
      const page = await browser.open(server);
      await page.goto(`${server.url}/`);
      await say(page, "heavy");
      await answered(page);
      await checkAlive(page);
      await page.reload();
      await page.locator(".answer .turn-footer:not([hidden])").waitFor();
      await checkAlive(page);
    },
  ],
  [
    "a session that means harm",
    async ({ browser, server }) => {
      const call = {
        id: 'call_"><img src=x onerror=pwn()>',
        type: "function",
        function: { name: "x<script>pwn()</script>", arguments: "{not json <img src=x onerror=pwn()>" },
      };
      const answer = await fetch(`${server.url}/v1/sessions/hostile`, {
        method: "PUT",
        headers: { "content-type": "application/json" },
        body: JSON.stringify({
          messages: [
            { role: "system", content: "<img src=x onerror=pwn()>" },
            {
              role: "user",
              content: [
                { type: "text", text: "<script>pwn()</script>" },
                { type: "image_url", image_url: { url: "http://evil.invalid/x.png" } },
              ],
            },
            {
              role: "assistant",
              content: "[x](javascript:pwn())",
              tool_calls: [call],
              annotations: [
                {
                  type: "url_citation",
                  url_citation: { start_index: 0, end_index: 1, url: "javascript:pwn()", title: "<b>t</b>" },
                },
              ],
            },
            {
              role: "tool",
              tool_call_id: call.id,
              content: [
                { type: "text", text: "<svg onload=pwn()>" },
                { type: "image_file", image_file: { file_id: "../../healthz?x=<b>" } },
              ],
            },
            { role: "assistant", content: "Done. [1]" },
          ],
        }),
      });
      assert.ok(answer.ok, await answer.text());
      const page = await browser.open(server);
      await page.goto(`${server.url}/#/chat/hostile`);
      await page.locator(".answer", { hasText: "Done." }).waitFor();
      await page.locator(".call summary").click();
      await page.locator(".call .output").first().waitFor();
      await page.locator(".instructions summary").click();
      await checkMarkup(page);
    },
  ],
  [
    "addresses that mean harm",
    async ({ browser, server }) => {
      const page = await browser.open(server);
      for (const hash of [
        "#/tools/%3Cimg%20src=x%20onerror=pwn()%3E",
        "#/runs/..%2F..%2Fv1%2Fmodels",
        "#/chat/%00",
        "#/%ZZ/%ZZ",
        "#javascript:pwn()",
        "#/runs/%E0%A4%A",
      ]) {
        await page.goto(`${server.url}/${hash}`);
        await page.locator("main h1").waitFor();
      }
      await checkMarkup(page);
    },
  ],
  [
    "the page and its policy",
    async ({ server }) => {
      const answer = await fetch(`${server.url}/`, { headers: { accept: "text/html" } });
      assert.equal(answer.status, 200);
      assert.match(answer.headers.get("content-type"), /^text\/html/);
      const policy = answer.headers.get("content-security-policy");
      for (const part of [
        "default-src 'none'",
        "script-src 'self'",
        "connect-src 'self'",
        "frame-ancestors 'none'",
        "require-trusted-types-for 'script'",
      ]) {
        assert.ok(policy?.includes(part), `the policy has ${part}; it is ${policy}`);
      }
      assert.equal((await fetch(`${server.url}/ui/nothing.js`)).status, 404);
      const script = await fetch(`${server.url}/ui/main.js`);
      assert.match(script.headers.get("content-type"), /javascript/);
      assert.equal(script.headers.get("x-content-type-options"), "nosniff");
    },
  ],
];
