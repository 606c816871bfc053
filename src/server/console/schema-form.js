// A form for the arguments of a tool, made from its JSON Schema: a field for each plain property, and JSON for the rest.

import { button, fill, h } from "./dom.js";
import { parseArguments, parseJson, prettyJson } from "./json.js";

let made = 0;

export class SchemaForm {
  constructor(schema) {
    this.schema = schema ?? {};
    this.prefix = `form-${(made += 1)}`;
    const isOptional = ([name]) => !(this.schema.required ?? []).includes(name);
    const properties = Object.entries(this.schema.properties ?? {}).sort(
      (one, other) => isOptional(one) - isOptional(other),
    );
    this.fields = properties.map(([name, property]) => this.field(name, property ?? {}));
    this.isJson = this.fields.length === 0;
    this.problem = h("p.problem", { id: `${this.prefix}-problem`, role: "alert" });
    this.text = h("textarea.code", {
      id: `${this.prefix}-json`,
      rows: 8,
      spellcheck: "false",
      "aria-describedby": `${this.prefix}-problem`,
    });
    this.body = h("div.fields", null);
    this.change = button("Edit as JSON", "code", () => this.toggle(), { class: "small" });
    this.element = h("div.schema-form", null, this.body, this.problem, this.fields.length ? this.change : null);
    this.draw();
  }

  draw() {
    this.change.querySelector("span").textContent = this.isJson ? "Edit as fields" : "Edit as JSON";
    fill(
      this.body,
      this.isJson
        ? h("div.field", null, h("label", { for: this.text.id }, "Arguments as JSON"), this.text)
        : this.fields.map((field) => field.element),
    );
  }

  toggle() {
    try {
      const value = this.value();
      this.isJson = !this.isJson;
      this.isJson ? (this.text.value = prettyJson(value)) : this.set(value);
      this.problem.textContent = "";
      this.draw();
    } catch (error) {
      this.problem.textContent = error.message;
    }
  }

  /** Writes arguments into the form. */
  set(value) {
    this.text.value = prettyJson(value);
    for (const field of this.fields) field.set(value[field.name]);
  }

  /** The arguments; throws an error that says what is wrong. */
  value() {
    if (this.isJson) return parseArguments(this.text.value);
    const entries = this.fields.map((field) => [field.name, field.get()]).filter(([, value]) => value !== undefined);
    return Object.fromEntries(entries);
  }

  field(name, property) {
    const id = `${this.prefix}-${name}`;
    const isRequired = (this.schema.required ?? []).includes(name);
    const type = Array.isArray(property.type) ? property.type.find((one) => one !== "null") : property.type;
    const described = property.description ? `${id}-note` : null;
    const attributes = { id, "aria-describedby": described, required: isRequired };
    const { input, get, set } = control(name, type, property, attributes);
    const element = h(
      "div.field",
      null,
      h(
        "label",
        { for: id },
        h("span.mono", null, name),
        isRequired ? h("span.required", null, " required") : h("span.muted", null, type ? ` ${type}` : ""),
      ),
      input,
      described && h("p.muted", { id: described }, String(property.description)),
    );
    return { name, element, get, set };
  }
}

/** A control for a property, with functions that read and write its value. */
function control(name, type, property, attributes) {
  if (Array.isArray(property.enum)) {
    const input = h(
      "select",
      attributes,
      h("option", { value: "" }, "–"),
      property.enum.map((one, index) => h("option", { value: index }, String(one))),
    );
    return {
      input,
      get: () => (input.value === "" ? undefined : property.enum[Number(input.value)]),
      set: (value) => (input.value = property.enum.includes(value) ? property.enum.indexOf(value) : ""),
    };
  }
  if (type === "boolean") {
    const input = h(
      "select",
      attributes,
      ["", "true", "false"].map((one) => h("option", { value: one }, one || "–")),
    );
    return {
      input,
      get: () => (input.value ? input.value === "true" : undefined),
      set: (value) => (input.value = value ?? ""),
    };
  }
  if (type === "integer" || type === "number") {
    const input = h("input", {
      ...attributes,
      type: "number",
      step: type === "integer" ? 1 : "any",
      min: property.minimum,
      max: property.maximum,
    });
    return {
      input,
      get: () => (input.value === "" ? undefined : Number(input.value)),
      set: (value) => (input.value = value ?? ""),
    };
  }
  if (type === "string") {
    const isLong = /code|text|content|body|query|source|script/i.test(name);
    const input = isLong
      ? h("textarea.code", { ...attributes, rows: name === "code" ? 6 : 2, spellcheck: "false" })
      : h("input", { ...attributes, type: "text", autocomplete: "off", spellcheck: "false" });
    return {
      input,
      get: () => (input.value === "" ? undefined : input.value),
      set: (value) => (input.value = value ?? ""),
    };
  }
  const input = h("textarea.code", { ...attributes, rows: 2, spellcheck: "false", placeholder: "JSON" });
  return {
    input,
    get: () => {
      if (!input.value.trim()) return undefined;
      try {
        return parseJson(input.value);
      } catch (error) {
        throw new SyntaxError(`${name} is not valid JSON: ${error.message}`);
      }
    },
    set: (value) => (input.value = value === undefined ? "" : JSON.stringify(value)),
  };
}
