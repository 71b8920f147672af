// What a list is made with: knobs and filters, what they ask of the service, and how they read in words.
import { listed, number } from "./dom.js";

export const KNOBS = [
  { name: "adventurousness", title: "Adventure", least: 0, low: "the obvious", high: "the unexpected" },
  { name: "popularity", title: "Fame", least: -1, low: "hidden gems", high: "big names" },
  { name: "diversity", title: "Variety", least: 0, low: "of a kind", high: "all different" },
];
const MAPS = ["wish", "shares", "only", "never", "range", "contains", "at_most"];

export const atRest = () => ({
  model: "", adventurousness: 0, popularity: 0, diversity: 0,
  wish: {}, shares: {}, only: {}, never: {}, range: {}, contains: {}, at_most: {},
});

// Only what differs from rest; the fragment and the words are made of it.
export function turned(settings) {
  const rest = atRest();
  return Object.fromEntries(Object.entries(settings).filter(([name, value]) => JSON.stringify(value) !== JSON.stringify(rest[name])));
}
export const isAtRest = (settings) => Object.keys(turned({ ...settings, model: "" })).length === 0;

// Settings out of a link may be anything: what is not of the expected kind stays at rest.
export function sane(given) {
  const settings = atRest();
  if (typeof given !== "object" || given === null) return settings;
  if (typeof given.model === "string") settings.model = given.model;
  for (const { name, least } of KNOBS) {
    if (Number.isFinite(given[name])) settings[name] = Math.min(1, Math.max(least, given[name]));
  }
  const kinds = {
    wish: (v) => mapOf(v, (w) => Number.isFinite(w) && Math.abs(w) <= 1),
    shares: (v) => mapOf(v, (w) => Number.isFinite(w) && w >= 0 && w <= 1),
    only: (v) => mapOf(v, (w) => w === true),
    never: (v) => mapOf(v, (w) => w === true),
    range: (v) => Array.isArray(v) && v.length === 2 && v.every((end) => end === null || Number.isFinite(end)),
    contains: (v) => typeof v === "string",
    at_most: (v) => Number.isInteger(v) && v > 0,
  };
  for (const name of MAPS) {
    for (const [column, value] of Object.entries(given[name] ?? {})) if (kinds[name](value)) settings[name][column] = value;
  }
  return settings;
}
const mapOf = (value, test) => typeof value === "object" && value !== null && Object.values(value).every(test);

// A copy in which one cell of a map is set, or gone where the value says nothing.
export function put(map, column, value) {
  const copy = { ...map };
  const nothing = value === undefined || value === "" || (typeof value === "object" && !Object.values(value).some((v) => v !== null));
  if (nothing) delete copy[column];
  else copy[column] = value;
  return copy;
}

const quoted = (text) => `'${String(text).replaceAll("'", "''")}'`;
const ticked = (column) => `\`${column}\``;

// An item belongs to each of the values between bars. Where another value holds this one as a part, the bars are asked for too.
function belongs(column, value) {
  const name = ticked(column.name), low = value.toLowerCase();
  const within = column.values.some((other) => other !== value && other.toLowerCase().includes(low));
  if (!within) return `${name} contains ${quoted(value)}`;
  return `(${name} == ${quoted(value)} or ${name} contains ${quoted(value + "|")} or ${name} contains ${quoted("|" + value)})`;
}

export function condition(settings, columns) {
  const parts = [];
  for (const column of columns) {
    const [least, most] = settings.range[column.name] ?? [null, null];
    if (least !== null) parts.push(`${ticked(column.name)} >= ${least}`);
    if (most !== null) parts.push(`${ticked(column.name)} <= ${most}`);
    if (settings.contains[column.name]) parts.push(`${ticked(column.name)} contains ${quoted(settings.contains[column.name])}`);
    const only = Object.keys(settings.only[column.name] ?? {}).map((value) => belongs(column, value));
    if (only.length) parts.push(`(${only.join(" or ")})`);
    for (const value of Object.keys(settings.never[column.name] ?? {})) parts.push(`not ${belongs(column, value)}`);
  }
  return parts.join(" and ");
}

// The body of a request for a list.
export function request(settings, columns, { shelf, hidden, k, why }) {
  const body = { history: shelf, k, why }, knobs = {};
  for (const { name } of KNOBS) if (settings[name]) knobs[name] = settings[name];
  for (const name of ["wish", "shares"]) if (Object.keys(settings[name]).length) knobs[name] = settings[name];
  if (Object.keys(knobs).length) body.knobs = knobs;
  const where = condition(settings, columns);
  if (where) body.where = where;
  if (hidden.length) body.deny = hidden;
  if (Object.keys(settings.at_most).length) body.at_most = settings.at_most;
  if (settings.model) body.model = settings.model;
  return body;
}

const degree = (value) => (Math.abs(value) < 0.34 ? "a little " : Math.abs(value) > 0.67 ? "strongly " : "");
const all = (map, word) => Object.values(map).flatMap((values) => Object.entries(values).map(([value, weight]) => word(value, weight)));

// Settings as half a sentence: what a list leans to and what it keeps out.
export function inWords(settings) {
  const leans = KNOBS.filter(({ name }) => settings[name]).map(
    ({ name, low, high }) => `${degree(settings[name])}towards ${settings[name] > 0 ? high : low}`,
  );
  const words = leans.length ? [`leaning ${listed(leans)}`] : [];
  const more = all(settings.wish, (value, w) => w > 0 && (w > 0.7 ? `much ${value}` : value)).filter(Boolean);
  const less = all(settings.wish, (value, w) => w < 0 && (w < -0.7 ? `much ${value}` : value)).filter(Boolean);
  if (more.length) words.push(`more ${listed(more)}`);
  if (less.length) words.push(`less ${listed(less)}`);
  const shares = all(settings.shares, (value, share) => `${number(100 * share)} % ${value}`);
  if (shares.length) words.push(`about ${listed(shares)}`);
  const only = all(settings.only, (value) => value), never = all(settings.never, (value) => value);
  if (only.length) words.push(`only ${only.join(" or ")}`);
  if (never.length) words.push(`no ${never.join(", no ")}`);
  for (const [column, [least, most]] of Object.entries(settings.range)) {
    words.push(least === null ? `${column} up to ${most}` : most === null ? `${column} from ${least}` : `${column} ${least} to ${most}`);
  }
  for (const [column, text] of Object.entries(settings.contains)) words.push(`${column} with “${text}”`);
  for (const [column, most] of Object.entries(settings.at_most)) words.push(`at most ${most} of a ${column}`);
  return words.join("; ");
}
