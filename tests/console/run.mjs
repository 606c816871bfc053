// The console in headless Chromium, used as a person uses it. Starts `loopwright demo` and `loopwright serve`, the latter in
// front of a scripted model server and of tools that mean harm, and fails if anything executes, any request leaves the
// origin, or a view has serious faults of accessibility.
//
//   node run.mjs --binary PATH --modules NODE_MODULES --artefacts DIRECTORY [--only WORD] [--chromium PATH]

import { mkdirSync, mkdtempSync, realpathSync, rmSync } from "node:fs";
import { createRequire } from "node:module";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { parseArgs } from "node:util";

import { cases as demoCases } from "./demo.mjs";
import { cases as hostileCases } from "./hostile.mjs";
import { cases as keyCases } from "./keys.mjs";
import { cases as runCases } from "./runs.mjs";
import { cases as viewCases } from "./views.mjs";
import { Browser } from "./browser.mjs";
import { endAll, Server } from "./server.mjs";

/** Milliseconds of a case; of all cases. */
const CASE_TIME = 90_000;
const WHOLE_TIME = 900_000;

const { values: options } = parseArgs({
  options: {
    binary: { type: "string" },
    modules: { type: "string" },
    artefacts: { type: "string" },
    only: { type: "string", default: "" },
    chromium: { type: "string", default: "/usr/bin/chromium" },
  },
});
for (const name of ["binary", "modules", "artefacts"]) {
  if (!options[name]) {
    console.error(
      `--${name} is missing; usage: node run.mjs --binary PATH --modules NODE_MODULES --artefacts DIRECTORY`,
    );
    process.exit(2);
  }
}

const load = createRequire(join(realpathSync(options.modules), "index.js"));
const artefacts = resolve(options.artefacts);
mkdirSync(artefacts, { recursive: true });
const work = mkdtempSync(join(tmpdir(), "loopwright-console-"));
const whole = setTimeout(() => stop("the suite took too long"), WHOLE_TIME);
let failures = 0;
let browser = null;

async function stop(reason) {
  console.error(`FAILED: ${reason}`);
  await browser?.close().catch(() => {});
  await endAll();
  process.exit(1);
}

for (const signal of ["SIGINT", "SIGTERM"]) process.on(signal, () => stop(`ended by ${signal}`));

function within(promise, milliseconds) {
  let timer;
  const late = new Promise((_, reject) => {
    timer = setTimeout(() => reject(new Error(`took longer than ${milliseconds / 1000} s`)), milliseconds);
  });
  return Promise.race([promise, late]).finally(() => clearTimeout(timer));
}

/** Runs the cases of a file with a server of its own. */
async function suite(title, cases, start) {
  const chosen = cases.filter(([name]) => `${title}: ${name}`.includes(options.only));
  if (!chosen.length) return;
  const server = await start();
  const { status } = await fetch(`${server.url}/`, { headers: { accept: "text/html" } });
  if (status !== 200) throw new Error(`the binary does not serve the console: GET / is answered with ${status}`);
  for (const [name, check] of chosen) {
    const begun = performance.now();
    const context = { server, artefacts, work, browser, binary: options.binary };
    try {
      await within(check(context), CASE_TIME);
      await browser.checkPages();
      console.log(`ok      ${title}: ${name} (${((performance.now() - begun) / 1000).toFixed(1)} s)`);
    } catch (error) {
      failures += 1;
      console.error(`FAILED  ${title}: ${name}\n${indented(error.stack ?? String(error))}`);
      await browser.keepPictures(artefacts, name);
    } finally {
      await browser.closePages();
    }
  }
  for (const problem of server.problems()) {
    failures += 1;
    console.error(`FAILED  ${title}: the model server or the tools were sent what nobody should send: ${problem}`);
  }
  await server.stop();
}

const indented = (text) => text.replace(/^/gm, "        ");

try {
  const axe = load("axe-core").source;
  browser = await Browser.launch(load("playwright-core").chromium, options.chromium, axe);
  await suite("demo", demoCases, () => Server.demo(options.binary, work));
  const serve = (settings) => () => Server.serve(options.binary, work, settings);
  await suite("runs", runCases, serve({}));
  await suite("hostile", hostileCases, serve({}));
  await suite("views", viewCases, serve({}));
  await suite("keys", keyCases, serve({ keys: true }));
} catch (error) {
  failures += 1;
  console.error(`FAILED: ${error.stack ?? error}`);
} finally {
  clearTimeout(whole);
  await browser?.close().catch(() => {});
  await endAll();
  rmSync(work, { recursive: true, force: true });
}
if (failures) {
  console.error(`${failures} failed; pictures are in ${artefacts}`);
  process.exit(1);
}
console.log(`All passed; pictures are in ${artefacts}`);
