#!/usr/bin/env node
// Starts the program, which is in the package for this platform: an optional dependency of this one.
"use strict";

const { spawn } = require("node:child_process");
const { existsSync } = require("node:fs");
const { constants } = require("node:os");

// The C libraries of Linux, the one of this machine first: some package managers install the packages for both.
const musl = existsSync(`/lib/ld-musl-${process.arch === "arm64" ? "aarch64" : "x86_64"}.so.1`);
const libraries = musl ? ["musl", "gnu"] : ["gnu", "musl"];

function program() {
  for (const library of libraries) {
    try {
      return require.resolve(`@loopwright/${process.platform}-${process.arch}-${library}/bin/loopwright`);
    } catch (error) {
      if (error.code !== "MODULE_NOT_FOUND") throw error;
    }
  }
  console.error(
    `loopwright: there is no package for ${process.platform} on ${process.arch}, or it is not installed. ` +
      "There are packages for linux on x64 and arm64; they are optional dependencies, so do not install with --omit=optional.",
  );
  process.exit(1);
}

const child = spawn(program(), process.argv.slice(2), { stdio: "inherit" });
// A terminal sends its signals to the program as well; all others reach this process alone.
process.on("SIGINT", () => process.stdin.isTTY || child.kill("SIGINT"));
for (const signal of ["SIGTERM", "SIGHUP"]) process.on(signal, () => child.kill(signal));
child.on("error", (error) => {
  console.error(`loopwright: the program cannot be started: ${error.message}`);
  process.exit(1);
});
child.on("exit", (code, signal) => process.exit(code ?? 128 + constants.signals[signal]));
