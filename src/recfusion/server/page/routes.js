// Shows the OpenAPI document: every route, every field with its type and bounds, and a request to try.
import { ask, authorization, takeToken } from "./api.js";

// The answer to any request as text, JSON indented.
async function send(method, path, body) {
  const headers = { ...authorization(), "Content-Type": "application/json" };
  try {
    const answer = await fetch(path, { method, headers, body }), text = await answer.text();
    return { status: answer.status, text: answer.headers.get("content-type")?.includes("json") ? JSON.stringify(JSON.parse(text), null, 2) : text };
  } catch {
    return { status: "", text: "The service does not answer. Is it still running?" };
  }
}

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
  const found = resolved(schema, all), { minimum: least, maximum: most } = found;
  const words = [];
  if (least !== undefined) words.push(most === undefined ? `at least ${least}` : `${least} to ${most}`);
  else if (most !== undefined) words.push(`at most ${most}`);
  const names = { minLength: "at least", maxLength: "at most", minItems: "at least", maxItems: "at most" };
  for (const [key, word] of Object.entries(names)) if (found[key] !== undefined) words.push(`${word} ${found[key]}`);
  if (found.default !== undefined && found.default !== null) words.push(`default ${JSON.stringify(found.default)}`);
  if (found.description && schema?.$ref === undefined) return [words.join(", "), found.description].filter(Boolean).join(": ");
  return words.join(", ");
}

function table(rows) {
  const head = element("thead", "", element("tr", "", ...["field", "type", "bounds and meaning"].map((one) => element("th", one))));
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
  return [...parts, trial(method.toUpperCase(), path, operation, body, all)];
}

// A value for a required field, and for those without which a request says little.
function example(name, schema, all) {
  const found = resolved(schema, all);
  if (name === "item") return known[0];
  if (name === "history") return known;
  if (found.default !== undefined) return found.default;
  if (found.properties) return filled(found, all);
  if (found.type === "array") return [example(name.replace(/s$/, ""), found.items, all)];
  return { string: "text", integer: found.minimum ?? 0, number: found.minimum ?? 0, boolean: true, object: {} }[found.type] ?? "text";
}

function filled(body, all) {
  const wanted = new Set([...(body.required ?? []), ...("history" in (body.properties ?? {}) ? ["history"] : [])]);
  return Object.fromEntries([...wanted].map((name) => [name, example(name, body.properties[name], all)]));
}

// Reading routes answer as soon as they are opened; others wait for the button.
function trial(method, path, operation, body, all) {
  const reads = !path.startsWith("/events") && !path.startsWith("/admin") && ["GET", "POST"].includes(method);
  const sent = element("textarea"), answer = element("pre"), run = element("button", "Run");
  const box = element("details", "", element("summary", "Try it"));
  const words = (operation.parameters ?? []).map((one) => `${one.name}=`).join("&");
  sent.value = ["GET", "DELETE"].includes(method) ? "" : JSON.stringify(filled(body, all), null, 2);
  sent.rows = Math.min(8, sent.value.split("\n").length + 1);
  sent.placeholder = words;
  sent.setAttribute("aria-label", `Body of ${method} ${path}`);
  answer.tabIndex = 0;
  run.onclick = async () => {
    answer.textContent = "…";
    const asks = ["GET", "DELETE"].includes(method);
    const found = await send(method, path.slice(1) + (asks && sent.value ? `?${sent.value}` : ""), asks ? undefined : sent.value);
    answer.textContent = `${found.status}\n${found.text}`;
  };
  box.ontoggle = () => box.open && !answer.textContent && reads && run.click();
  box.append(sent, run, answer);
  return box;
}

const state = document.getElementById("state");
let known = ["an id"]; // ids of items for examples
try {
  takeToken(); // the page's own is in the session of this tab
  const description = await ask("openapi.json");
  const all = description.components?.schemas ?? {};
  known = (await ask("popular?k=2")).items.map((item) => item.item);
  for (const [path, methods] of Object.entries(description.paths))
    for (const [method, operation] of Object.entries(methods))
      document.getElementById("routes").append(...route(method, path, operation, all));
  state.textContent = "A star marks a required field. Every error is {error, field}.";
} catch (error) {
  state.textContent = `Cannot read the description of the service: ${error.message}`;
}
