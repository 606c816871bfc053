// What the server offers, asked once and kept until somebody wants it anew: models and tools.

import { get } from "./api.js";

const kept = new Map();

function once(path) {
  if (!kept.has(path)) {
    const asked = get(path);
    asked.catch(() => kept.delete(path));
    kept.set(path, asked);
  }
  return kept.get(path);
}

export const models = async () => (await once("/v1/models")).data ?? [];
export const tools = async () => (await once("/v1/agent/tools")).data ?? [];
/** The MCP servers, with their states. */
export const mcpServers = async () => (await once("/v1/agent/tools")).mcp_servers ?? [];

/** The next question goes to the server again. */
export function forget() {
  kept.clear();
}

/** What a person has chosen, kept in this browser. It holds no key and no message. */
export const preferences = {
  get(name, otherwise) {
    try {
      return JSON.parse(localStorage.getItem(`loopwright.${name}`)) ?? otherwise;
    } catch {
      return otherwise;
    }
  },
  set(name, value) {
    try {
      localStorage.setItem(`loopwright.${name}`, JSON.stringify(value));
    } catch {
      // A browser without storage: the choice lasts as long as the page.
    }
  },
};
