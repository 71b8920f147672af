// A list of items with the reasons of each, and what is similar to one of them.
import { count, tags } from "./dom.js";
import { inWords, isAtRest } from "./settings.js";
import { add, change, state } from "./store.js";

const { article, b, button, div, h2, li, ol, p, section, span, strong, ul } = tags;

const TASTE = "what your taste suggests";
const inUnitsOfScore = ({ items, text }) => items.length > 0 || text === TASTE;

// The columns of the item table as one short line.
export function about(columns) {
  return Object.entries(columns ?? {})
    .filter(([, value]) => value !== null && value !== "")
    .map(([name, value]) => (typeof value === "string" ? value.replaceAll("|", " · ") : `${name} ${value}`))
    .join(" · ");
}

function reasons(one, longest) {
  const parts = (one.because ?? []).filter(inUnitsOfScore), knobs = (one.because ?? []).filter((reason) => !inUnitsOfScore(reason));
  if (one.reasons === "popularity") return div({ class: "reasons" }, bar([one.because[0]], longest), p(null, "popular with everybody"));
  if (!parts.length && !knobs.length) return div({ class: "reasons" }, p(null, "nothing on the shelf speaks for it by itself"));
  return div(
    { class: "reasons" },
    bar(parts, longest),
    p(
      null,
      parts.length > 0 && span({ class: "hidden" }, "because of "),
      parts.map(({ text }, place) => span({ key: text, class: `part p${place}` }, text)),
      knobs.map(({ text }) => span({ key: text, class: "part wish" }, text === "popularity" ? "fame" : text.replace(/^.*?: /, ""))),
    ),
  );
}

const bar = (parts, longest) =>
  div({ class: "bar", "aria-hidden": "true" }, parts.map(({ weight, text }, place) =>
    span({ key: text, class: `p${place}`, style: { width: `${(100 * weight) / longest}%` } })));

const total = ({ because }) => (because ?? []).filter((reason) => inUnitsOfScore(reason) || reason.text === "popular").reduce((sum, { weight }) => sum + weight, 0);

function row(one, longest) {
  const open = state.similar === one.item, spot = (what) => `${what}:${one.rank}`;
  return li(
    { key: one.item, class: "row", "data-flip": one.item },
    span({ class: "rank", "aria-hidden": "true" }, one.rank),
    div({ class: "what" }, strong(null, one.name), p({ class: "about" }, about(one.columns))),
    reasons(one, longest),
    div(
      { class: "acts" },
      button({ class: "act", "data-spot": spot("add"), "aria-label": `Put ${one.name} on the shelf`, title: "Put it on the shelf", onClick: () => add(one.item, one.name) }, "+"),
      button({ class: "act", "data-spot": spot("like"), "aria-label": `Similar to ${one.name}`, title: "Similar to this", "aria-expanded": String(open), onClick: () => { state.names[one.item] = one.name; change({ similar: open ? "" : one.item }); } }, "≈"),
      button({ class: "act", "data-spot": spot("hide"), "aria-label": `Not ${one.name}`, title: "Not this one", onClick: () => { state.names[one.item] = one.name; change({ hidden: [...state.hidden, one.item] }, { history: true }); } }, "×"),
    ),
    open && similarPanel(),
  );
}

export function similarPanel() {
  const { data, error } = state.answers.similar ?? {}, name = state.names[state.similar] ?? state.similar;
  return section(
    { class: "similar", "aria-label": `Similar to ${name}` },
    div({ class: "head" }, b(null, `Similar to ${name}`), button({ class: "cross", "aria-label": "Close", onClick: () => change({ similar: "" }) }, "×")),
    error && p({ class: "error", role: "alert" }, error),
    data && ul(null, data.items.filter(({ item }) => !state.shelf.includes(item)).map((one) =>
      li({ key: one.item }, button({ class: "chip", "aria-label": `Put ${one.name} on the shelf`, onClick: () => add(one.item, one.name) }, span({ class: "sign" }, "+"), one.name)))),
  );
}

const KINDS = {
  exact: "They are exact: what everything on the shelf contributes adds up to the score.",
  "left out": "They are estimated: how far the score falls when that thing is left out.",
  "partly exact": "They are exact for a part of the model, and estimated for the rest by leaving things out.",
};

export function list() {
  const { data, error, ms } = state.answers.list ?? {};
  if (!data && !error) return p({ class: "note" }, "Making the list …");
  const items = data?.items ?? [], longest = Math.max(...items.map(total), 1e-12), popular = data?.basis === "popularity";
  const words = inWords(state.now);
  return article(
    { class: "list", "aria-labelledby": "list-title" },
    h2({ id: "list-title" }, popular ? "What everybody likes" : `After ${count(state.shelf.length, "thing")}, these`),
    p({ class: "lead" }, popular && !state.shelf.length ? "The shelf is empty, so these are simply the most popular. Pick one with + and the list becomes yours." : popular ? "Nothing on the shelf is known to the model, so these are the most popular." : isAtRest(state.now) ? "Everything at rest: the model’s own order." : words[0].toUpperCase() + words.slice(1) + "."),
    error && p({ class: "error", role: "alert" }, error),
    ol({ class: error ? "rows stale" : "rows" }, items.map((one) => row(one, longest))),
    div(
      { class: "below" },
      items.length === state.k && state.k < 100 && button({ class: "plain", onClick: () => change({ k: Math.min(100, state.k + 20) }) }, "Show more"),
      state.hidden.length > 0 && button({ class: "plain", onClick: () => change({ hidden: [] }, { history: true }) }, `Bring back ${count(state.hidden.length, "hidden item")}`),
    ),
    items.length > 0 && p({ class: "note" },
      popular ? "" : `Bars: how much things on your shelf speak for an item. ${KINDS[items[0].reasons] ?? ""} `,
      `Made in ${Math.max(1, Math.round(ms))} ms.`),
  );
}
