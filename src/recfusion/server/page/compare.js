// Two lists side by side, from two settings or two models; lines connect the items that both have.
import { count, tags } from "./dom.js";
import { describe } from "./settings.js";
import { change, state } from "./store.js";
import { addButton, alertBox, screenReaderOnly, textButton, view } from "./parts.js";

const { div, h3, label, li, ol, option, p, path, section, select, span, svg } = tags;
const TITLES = { saved: "Saved", current: "Current" };

export const modelChoice = (settings, set) =>
	state.model.models.length > 1 && label(null, screenReaderOnly("Model "), select(
		{ value: settings.model, onchange: ({ target }) => set(target.value) },
		state.model.models.map(({ name }, n) => option({ key: name, value: n ? name : "" }, name))));

function entry(side, one, otherRank) {
	const up = otherRank && side === "current" ? otherRank - one.rank : 0;
	return li({ key: one.item, class: !otherRank && "alone", title: one.name },
		span({ class: "rank", "aria-hidden": "true" }, one.rank),
		span({ class: "name" }, one.name),
		!otherRank && span({ class: "mark" }, side === "current" ? "new" : "gone"),
		up !== 0 && span({ class: "mark" }, up > 0 ? "↑" : "↓", screenReaderOnly(up > 0 ? "up by" : "down by"), ` ${Math.abs(up)}`),
		addButton(one));
}

function side(name, items, other) {
	const ranks = new Map(other.map(({ item, rank }) => [item, rank]));
	return section({ class: "side", "aria-label": TITLES[name] },
		div({ class: "head" }, h3(null, TITLES[name]), modelChoice(state[name], (model) => change({ [name]: { ...state[name], model } }, true))),
		p({ class: "note" }, describe(state[name]) || "no filters or re-ranking"),
		ol(null, items.map((one) => entry(name, one, ranks.get(one.item)))));
}

// The lines are decoration: each entry says the same in words.
function lines(left, right) {
	const ranks = new Map(right.map(({ item, rank }) => [item, rank])), n = Math.max(left.length, right.length, 1);
	return svg({ class: "lines", viewBox: `0 0 10 ${n}`, preserveAspectRatio: "none", "aria-hidden": "true", style: { "--n": n } },
		left.filter(({ item }) => ranks.has(item)).map(({ item, rank }) => {
			const from = rank - 0.5, to = ranks.get(item) - 0.5;
			return path({ key: item, class: to < from ? "up" : to > from && "down", d: `M0 ${from}C5 ${from} 5 ${to} 10 ${to}` });
		}));
}

export function compare() {
	const { saved, current } = state.answers, left = saved?.data?.items ?? [], right = current?.data?.items ?? [];
	const both = left.filter(({ item }) => right.some((one) => one.item === item)).length, only = right.length - both;
	const words = right.every(({ item }, n) => left[n]?.item === item)
		? "The two lists are the same. Move a slider, set a filter or choose another model to see a difference."
		: `${both} of ${count(right.length, "item")} in both lists; ${only ? `${only} new` : "only the order differs"}.`;
	return view("compare", "Side by side", left.length && right.length ? words : "Loading the lists …",
		alertBox(saved?.error || current?.error),
		div({ class: "below" },
			textButton("Save the current settings", () => change({ saved: structuredClone(state.current) }, true)),
			textButton("Swap", () => change({ saved: state.current, current: state.saved }, true))),
		div({ class: "sides" }, side("saved", left, right), lines(left, right), side("current", right, left)),
		p({ class: "note" }, "Sliders and filters change the current list; the saved one stays. Lines connect the items in both."));
}
