// Two lists side by side: two settings or two models, with lines between what both have.
import { count, tags } from "./dom.js";
import { inWords } from "./settings.js";
import { add, change, state } from "./store.js";

const { article, b, button, div, h2, h3, label, li, ol, option, p, path, section, select, span, svg } = tags;

const SIDES = { kept: "Kept", now: "Now" };

function side(name, items, other, error) {
  const settings = state[name], place = new Map(other.map(({ item, rank }) => [item, rank])), models = state.model.models;
  return section(
    { class: "side", "aria-label": SIDES[name] },
    h3(null, SIDES[name]),
    models.length > 1 && label(null, span({ class: "hidden" }, "Model "), select(
      { value: settings.model, onChange: (event) => change({ [name]: { ...settings, model: event.target.value } }, { history: true }) },
      models.map((model, n) => option({ key: model.name, value: n ? model.name : "" }, model.name)))),
    p({ class: "note" }, inWords(settings) || "everything at rest"),
    error && p({ class: "error", role: "alert" }, error),
    ol(null, items.map((one) => {
      const there = place.get(one.item), moved = there === undefined ? 0 : there - one.rank;
      const mark = there === undefined ? "only here" : moved > 0 ? `↑ ${moved}` : moved < 0 ? `↓ ${-moved}` : "";
      return li(
        { key: one.item, class: there === undefined ? "alone" : moved ? "moved" : "", title: one.name },
        span({ class: "rank", "aria-hidden": "true" }, one.rank),
        span({ class: "name" }, one.name),
        mark && span({ class: "mark" }, span({ class: "hidden" }, there === undefined ? "" : moved > 0 ? "higher by " : "lower by "), mark),
        button({ class: "act", "aria-label": `Put ${one.name} on the shelf`, title: "Put it on the shelf", onClick: () => add(one.item, one.name) }, "+"),
      );
    })),
  );
}

// The lines are decoration: each place says in words what they show.
function lines(left, right) {
  const place = new Map(right.map(({ item, rank }) => [item, rank])), n = Math.max(left.length, right.length, 1);
  return svg(
    { class: "lines", viewBox: `0 0 10 ${n}`, preserveAspectRatio: "none", "aria-hidden": "true", style: { "--n": n } },
    left.filter(({ item }) => place.has(item)).map(({ item, rank }) => {
      const from = rank - 0.5, to = place.get(item) - 0.5;
      return path({ key: item, class: from === to ? "" : to < from ? "up" : "down", d: `M0 ${from}C5 ${from} 5 ${to} 10 ${to}` });
    }),
  );
}

export function compare() {
  const { kept, now } = state.answers, left = kept?.data?.items ?? [], right = now?.data?.items ?? [];
  const both = left.filter(({ item }) => right.some((one) => one.item === item)).length;
  const same = both === right.length && left.every(({ item }, n) => right[n]?.item === item);
  const told = !left.length || !right.length ? "" : same ? "The two lists are the same. Turn a knob or choose another model to see what changes."
    : `${both} of ${count(right.length, "item")} are in both lists; ${right.length - both ? `${right.length - both} are new` : "only their order differs"}.`;
  return article(
    { class: "compare", "aria-labelledby": "compare-title" },
    h2({ id: "compare-title" }, "Side by side"),
    p({ class: "lead" }, told),
    div({ class: "below" },
      button({ class: "plain", onClick: () => change({ kept: structuredClone(state.now) }, { history: true }) }, "Keep what is now"),
      button({ class: "plain", onClick: () => change({ kept: state.now, now: state.kept }, { history: true }) }, "Swap")),
    div({ class: "sides" }, side("kept", left, right, kept?.error), lines(left, right), side("now", right, left, now?.error)),
    p({ class: "note" }, b(null, "Kept"), " stays as it is while you turn the knobs of ", b(null, "now"), ". Lines join what both lists have."),
  );
}
