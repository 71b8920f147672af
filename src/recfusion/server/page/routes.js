// Shows the OpenAPI document: every route, and every field with its type and bounds.
import { ask, takeToken } from "./api.js";

function element(name, text = "", ...children) {
  const made = document.createElement(name);
  if (text) made.textContent = text;
  made.append(...children);
  return made;
}

function resolved(schema, all) {
  return schema?.$ref ? all[schema.$ref.split("/").pop()] : schema ?? {};
}

function kind(schema, all, depth = 0) {
  const found = resolved(schema, all);
  if (found.const !== undefined) return JSON.stringify(found.const);
  if (found.enum) return found.enum.map((one) => JSON.stringify(one)).join(" or ");
  if (found.anyOf) return found.anyOf.map((one) => kind(one, all, depth)).join(" or ");
  if (found.type === "array") return `list of ${kind(found.items, all, depth + 1)}`;
  if (found.properties && depth < 2) return `{${Object.keys(found.properties).join(", ")}}`;
  if (found.type === "object" && found.additionalProperties) return `{name: ${kind(found.additionalProperties, all, depth + 1)}}`;
  return found.type ?? "anything";
}

function bounds(schema, all) {
  const found = resolved(schema, all);
  const words = [];
  const names = { minimum: "from", maximum: "to", minLength: "at least", maxLength: "at most", minItems: "at least", maxItems: "at most" };
  for (const [key, word] of Object.entries(names)) if (found[key] !== undefined) words.push(`${word} ${found[key]}`);
  if (found.default !== undefined && found.default !== null) words.push(`default ${JSON.stringify(found.default)}`);
  if (found.description && schema?.$ref === undefined) words.push(found.description);
  return words.join(", ");
}

function table(rows) {
  const head = element("thead", "", element("tr", "", ...["field", "type", "bounds"].map((one) => element("th", one))));
  const lines = rows.map(([name, type, bound]) =>
    element("tr", "", element("td", "", element("code", name)), element("td", type), element("td", bound)));
  return element("table", "", head, element("tbody", "", ...lines));
}

function route(method, path, operation, all) {
  const parts = [element("h2", `${method.toUpperCase()} ${path}`), element("p", operation.summary ?? "")];
  const rows = (operation.parameters ?? []).map((one) => [one.name, kind(one.schema, all), bounds(one.schema, all)]);
  const body = resolved(operation.requestBody?.content?.["application/json"]?.schema, all);
  for (const [name, schema] of Object.entries(body.properties ?? {}))
    rows.push([name + (body.required?.includes(name) ? " *" : ""), kind(schema, all), bounds(schema, all)]);
  if (rows.length) parts.push(table(rows));
  return parts;
}

const state = document.getElementById("state");
try {
  takeToken(); // the page's own is in the session of this tab
  const description = await ask("openapi.json");
  const all = description.components?.schemas ?? {};
  for (const [path, methods] of Object.entries(description.paths))
    for (const [method, operation] of Object.entries(methods))
      document.getElementById("routes").append(...route(method, path, operation, all));
  state.textContent = "A star marks a required field. Every error is {error, field}.";
} catch (error) {
  state.textContent = `Cannot read the description of the service: ${error.message}`;
}
