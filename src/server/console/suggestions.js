// First messages for a new chat: those of the demo, or what fits the tools of the server.

import { models, tools } from "./server.js";

const DEMO_MODEL = "loopwright-demo";

const DEMO = [
  { text: "What is the weather in Oslo and Nairobi?" },
  { text: "What is the state of ticket 4711?" },
  { text: "Plot the temperatures of Lisbon, Oslo and Nairobi.", code: true },
  { text: "Who built the lighthouse of Velmouth, and how tall is its tower?" },
  { text: "When is high water in Velmouth?" },
  { text: "Please refund 4711." },
];

export async function suggestions() {
  try {
    const [known, offered] = await Promise.all([models(), tools()]);
    if (known.some((model) => model.id === DEMO_MODEL)) {
      const hasCode = offered.some((tool) => tool.name === "execute_python");
      return DEMO.filter((suggestion) => hasCode || !suggestion.code);
    }
    const has = (name) => offered.some((tool) => tool.name === name);
    return [
      has("execute_python") && { text: "Plot a damped sine wave with Python.", code: true },
      has("web_search") && { text: "Search the web: what is new in HTTP/3 this year?" },
      offered.length > 0 && { text: "Which tools can you call, and what for?" },
    ].filter(Boolean);
  } catch {
    // The form says what is wrong with the server.
    return [];
  }
}
