// Two lists side by side, from two settings or two models.
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
	return li({ key: one.item, class: !otherRank && "alone" },
		span({ class: "rank", "aria-hidden": "true" }, one.rank),
		span({ class: "name", dir: "auto" }, one.name),
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
	const ranks = new Map(right.map(({ item, rank }) => [item, rank]));
	return svg({ class: "lines", "aria-hidden": "true" }, left.filter(({ item }) => ranks.has(item)).map(({ item, rank }) => {
		const to = ranks.get(item);
		return path({ key: item, class: to < rank ? "up" : to > rank && "down", "data-ends": `${rank - 1} ${to - 1}` });
	}));
}

// Rows differ in height: the lines are laid out after them.
export function drawLines() {
	const box = document.querySelector(".lines")?.getBoundingClientRect(), sides = [...document.querySelectorAll(".side ol")];
	if (!box) return;
	const middles = sides.map((side) => [...side.children].map((row) => row.getBoundingClientRect()).map(({ top, height }) => top + height / 2 - box.top));
	for (const line of document.querySelectorAll(".lines path")) {
		const [from, to] = line.dataset.ends.split(" ").map((n, side) => Math.round(middles[side][n])), x = Math.round(box.width);
		line.setAttribute("d", `M0 ${from}C${x / 2} ${from} ${x / 2} ${to} ${x} ${to}`);
	}
}

export function compare() {
	const { saved, current } = state.answers, left = saved?.data?.items ?? [], right = current?.data?.items ?? [];
	const both = left.filter(({ item }) => right.some((one) => one.item === item)).length, only = right.length - both;
	const words = right.every(({ item }, n) => left[n]?.item === item)
		? "The two lists are the same. Move a slider or set a filter to see a difference."
		: `${both} of ${count(right.length, "item")} in both lists; ${only ? `${only} new` : "only the order differs"}.`;
	return view("compare", "Side by side", left.length && right.length ? words : saved?.error || current?.error ? "" : "Loading the lists …",
		alertBox(saved?.error || current?.error),
		div({ class: "below" },
			textButton("Save the current settings", () => change({ saved: structuredClone(state.current) }, true)),
			textButton("Swap", () => change({ saved: state.current, current: state.saved }, true))),
		div({ class: "sides" }, side("saved", left, right), lines(left, right), side("current", right, left)),
		p({ class: "note" }, "Sliders and filters change the current list; the saved one stays. Lines connect the items in both."));
}
