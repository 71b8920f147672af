// Two lists side by side: two settings or two models, with lines between what both have.
import { count, tags } from "./dom.js";
import { inWords } from "./settings.js";
import { change, state } from "./store.js";
import { heard, plain, plus, trouble, view } from "./parts.js";

const { div, h3, label, li, ol, option, p, path, section, select, span, svg } = tags;
const TITLES = { kept: "Kept", now: "Now" };

export const models = (settings, set) =>
	state.model.models.length > 1 && label(null, heard("Model "), select(
		{ value: settings.model, onchange: ({ target }) => set(target.value) },
		state.model.models.map(({ name }, n) => option({ key: name, value: n ? name : "" }, name))));

function place(side, one, there) {
	const up = there && side === "now" ? there - one.rank : 0;
	return li({ key: one.item, class: !there && "alone", title: one.name },
		span({ class: "rank", "aria-hidden": "true" }, one.rank),
		span({ class: "name" }, one.name),
		!there && span({ class: "mark" }, side === "now" ? "new" : "gone"),
		up !== 0 && span({ class: "mark" }, up > 0 ? "↑" : "↓", heard(up > 0 ? "up by" : "down by"), ` ${Math.abs(up)}`),
		plus(one));
}

function side(name, items, other) {
	const there = new Map(other.map(({ item, rank }) => [item, rank]));
	return section({ class: "side", "aria-label": TITLES[name] },
		div({ class: "head" }, h3(null, TITLES[name]), models(state[name], (model) => change({ [name]: { ...state[name], model } }, true))),
		p({ class: "note" }, inWords(state[name]) || "everything at rest"),
		ol(null, items.map((one) => place(name, one, there.get(one.item)))));
}

// The lines are decoration: each place says in words what they show.
function lines(left, right) {
	const there = new Map(right.map(({ item, rank }) => [item, rank])), n = Math.max(left.length, right.length, 1);
	return svg({ class: "lines", viewBox: `0 0 10 ${n}`, preserveAspectRatio: "none", "aria-hidden": "true", style: { "--n": n } },
		left.filter(({ item }) => there.has(item)).map(({ item, rank }) => {
			const from = rank - 0.5, to = there.get(item) - 0.5;
			return path({ key: item, class: to < from ? "up" : to > from && "down", d: `M0 ${from}C5 ${from} 5 ${to} 10 ${to}` });
		}));
}

export function compare() {
	const { kept, now } = state.answers, left = kept?.data?.items ?? [], right = now?.data?.items ?? [];
	const both = left.filter(({ item }) => right.some((one) => one.item === item)).length, only = right.length - both;
	const told = right.every(({ item }, n) => left[n]?.item === item)
		? "The two lists are the same. Turn a knob or choose another model to see what changes."
		: `${count(both, "item")} of ${right.length} in both lists; ${only ? `${only} new` : "only the order differs"}.`;
	return view("compare", "Side by side", left.length && right.length ? told : "Making the lists …",
		trouble(kept?.error || now?.error),
		div({ class: "below" },
			plain("Keep what is now", () => change({ kept: structuredClone(state.now) }, true)),
			plain("Swap", () => change({ kept: state.now, now: state.kept }, true))),
		div({ class: "sides" }, side("kept", left, right), lines(left, right), side("now", right, left)),
		p({ class: "note" }, "The knobs turn “now”; “kept” stays as it is. Lines join what both lists have."));
}
