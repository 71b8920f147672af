// Sliders for the knobs, and filters made from the columns that the item table has.
import { tags } from "./dom.js";
import { KNOBS, atRest, isAtRest, put, turned } from "./settings.js";
import { change, state, turn } from "./store.js";

const { b, button, details, div, fieldset, h2, input, label, legend, option, p, select, span, summary } = tags;

const SHOWN = 24; // values of a column before "all"
const BRUSHES = { more: "more of", less: "less of", only: "only", never: "none of", share: "a share" };

function slider({ id, title, low, high, least = 0, value, step = 0.05, most = 1, set }) {
  const place = (value - least) / (most - least), middle = least < 0 ? 0.5 : 0;
  const from = Math.min(place, middle), to = Math.max(place, middle);
  return div(
    { class: "slider" },
    label({ for: id }, title),
    input({
      id, type: "range", min: least, max: most, step, value, "aria-valuetext": told(value, least, low, high),
      style: { "--from": `${100 * from}%`, "--to": `${100 * to}%` },
      onInput: (event) => set(Number(event.target.value)),
      onDblClick: () => set(least < 0 ? 0 : least),
    }),
    div({ class: "ends", "aria-hidden": "true" }, span(null, low), span(null, high)),
  );
}
const told = (value, least, low, high) =>
  value === 0 && least <= 0 ? "at rest" : `${Math.round(100 * Math.abs(value))} % towards ${value > 0 || least === 0 ? high : low}`;

export function knobs() {
  const dirty = !isAtRest(state.now);
  return div(
    { class: "knobs" },
    div({ class: "head" }, h2(null, "Knobs"), button({ class: "quiet", disabled: !dirty, onClick: () => turn({ ...atRest(), model: state.now.model }, { history: true }) }, "Reset all")),
    KNOBS.map((knob) => slider({ ...knob, id: knob.name, value: state.now[knob.name], set: (value) => turn({ [knob.name]: value }) })),
  );
}

function categories(column) {
  const { name, values } = column, { wish, shares, only, never, at_most: most } = state.now;
  const marked = (value) => [wish, shares, only, never].some((map) => map[name]?.[value] !== undefined);
  const wide = state.wide[name], shown = wide ? values : values.filter((value, place) => place < SHOWN || marked(value));
  return fieldset(
    { key: name, class: "column" },
    legend(null, name),
    div({ class: "brushes", role: "radiogroup", "aria-label": `A click on a value of ${name} means` }, Object.entries(BRUSHES).map(([brush, word]) =>
      label({ key: brush }, input({ type: "radio", class: "hidden", name: `brush-${name}`, checked: state.brush === brush, onChange: () => change({ brush }) }), span(null, word)))),
    div({ class: "chips" }, shown.map((value) => chip(name, value)),
      values.length > SHOWN && button({ class: "quiet", onClick: () => change({ wide: { ...state.wide, [name]: !wide } }) }, wide ? "fewer" : `all ${values.length}`)),
    Object.entries(shares[name] ?? {}).map(([value, share]) =>
      slider({ id: `share-${name}-${value}`, title: `${value}: ${Math.round(100 * share)} % of the list`, low: "none", high: "all", value: share, set: (wanted) => paintShare(name, value, wanted) })),
    label({ class: "most" }, "At most ", select({ value: most[name] ?? "", onChange: (event) => turn({ at_most: put(most, name, event.target.value ? Number(event.target.value) : undefined) }) },
      option({ value: "" }, "any number"), [1, 2, 3, 5, 8].map((n) => option({ key: n, value: n }, n))), " of each"),
  );
}

function chip(column, value) {
  const { wish, shares, only, never } = state.now, weight = wish[column]?.[value] ?? 0, share = shares[column]?.[value];
  const [kind, sign, word] =
    only[column]?.[value] ? ["only", "✓", "only"]
    : never[column]?.[value] ? ["never", "⊘", "none of"]
    : share !== undefined ? ["share", `${Math.round(100 * share)} %`, `${Math.round(100 * share)} % of the list`]
    : weight > 0 ? ["more", weight > 0.7 ? "++" : "+", weight > 0.7 ? "much more" : "more"]
    : weight < 0 ? ["less", weight < -0.7 ? "−−" : "−", weight < -0.7 ? "much less" : "less"]
    : ["", "", ""];
  return button({ key: value, class: `chip ${kind}`, "aria-pressed": String(kind !== ""), "aria-label": word ? `${value}: ${word}` : value, onClick: () => paint(column, value) },
    sign && span({ class: "sign" }, sign), value);
}

// A click gives a value the brush's meaning, a second click more of it where there is more, the next one takes it away.
function paint(column, value) {
  const now = state.now, brush = state.brush, was = now.wish[column]?.[value] ?? 0;
  const had = { only: now.only[column]?.[value], never: now.never[column]?.[value], share: now.shares[column]?.[value] !== undefined };
  const patch = Object.fromEntries(["wish", "shares", "only", "never"].map((map) => [map, put(now[map], column, without(now[map][column], value))]));
  const set = (map, to) => (patch[map] = put(patch[map], column, { ...patch[map][column], [value]: to }));
  const sign = { more: 1, less: -1 }[brush];
  if (sign && was !== sign) set("wish", was * sign > 0 ? sign : sign * 0.5);
  if ((brush === "only" || brush === "never") && !had[brush]) set(brush, true);
  if (brush === "share" && !had.share) {
    patch.shares = patch.shares[column] ? { [column]: patch.shares[column] } : {}; // of one column at a time
    set("shares", Math.min(0.3, left(patch.shares[column])));
    if (!patch.shares[column][value]) patch.shares = now.shares;
  }
  turn(patch, { history: true });
}
const without = (map, value) => Object.fromEntries(Object.entries(map ?? {}).filter(([other]) => other !== value));
const left = (shares) => Math.round(100 * (1 - Object.values(shares ?? {}).reduce((sum, share) => sum + share, 0))) / 100;

function paintShare(column, value, wanted) {
  const rest = without(state.now.shares[column], value);
  const share = Math.max(0.05, Math.min(wanted, left(rest)));
  turn({ shares: { [column]: { ...rest, [value]: share } } });
}

function numbers({ name, min, max }) {
  const [least, most] = state.now.range[name] ?? [null, null];
  const end = (text) => (text.trim() === "" || !Number.isFinite(Number(text)) ? null : Number(text));
  const field = (word, value, hint, set) =>
    label(null, `${word} `, input({ type: "number", step: "any", value: value ?? "", placeholder: hint, "aria-label": `${name} ${word}`, onInput: (event) => turn({ range: put(state.now.range, name, set(end(event.target.value))) }) }));
  return fieldset({ key: name, class: "column number" }, legend(null, name),
    field("from", least, min, (value) => [value, most]), field("to", most, max, (value) => [least, value]));
}

function text({ name }) {
  return fieldset({ key: name, class: "column text" }, legend(null, name),
    label(null, "with ", input({ type: "text", value: state.now.contains[name] ?? "", placeholder: "these words", "aria-label": `${name} contains`, onInput: (event) => turn({ contains: put(state.now.contains, name, event.target.value) }) })));
}

export function filters() {
  const makers = { categories, number: numbers, text };
  const columns = state.model.columns.filter(({ kind, name }) => makers[kind] && !name.includes("`"));
  return columns.length > 0 && div({ class: "filters" }, h2(null, "Filters and wishes"), columns.map((column) => makers[column.kind](column)));
}

// Beside the list on a desk; on a phone a sheet at the lower edge, so that the list is in sight while a knob turns.
export function controls() {
  const n = Object.keys(turned({ ...state.now, model: "" })).length;
  return details(
    { class: "controls", open: state.sheet, onToggle: (event) => event.target.open !== state.sheet && change({ sheet: event.target.open }) },
    summary(null, b(null, "Knobs and filters"), n > 0 && span({ class: "n" }, `${n} set`)),
    div({ class: "inner" }, knobs(), filters(), p({ class: "note" }, "A double click on a slider brings it back to rest.")),
  );
}
export { slider };
