// A list of items with the reasons of each, and what is similar to one of them.
import { count, tags } from "./dom.js";
import { inWords, nTurned } from "./settings.js";
import { change, name, nameOf, state } from "./store.js";
import { about, act, chip, heard, plain, plus, trouble, view } from "./parts.js";

const { b, button, div, li, ol, p, section, span, strong, ul } = tags;
const KINDS = {
	exact: "They are exact: all of them add up to the score.",
	"left out": "They are estimates: how far the score falls without that thing.",
	"partly exact": "They are exact for a part of the model, and estimates for the rest.",
};

// Reasons in units of the score make the bar; what a knob adds is in other units, and only named.
const inBar = ({ items, text }) => items.length > 0 || text === "what your taste suggests" || text === "popular";
const length = ({ because }) => because.filter(inBar).reduce((sum, { weight }) => sum + weight, 0);

function knob(text) {
	const [column, value] = text.split(": ");
	return text === "popularity" ? "+ fame" : `${state.now.wish[column]?.[value] < 0 ? "−" : "+"} ${value}`;
}

function reasons({ because, reasons }, longest) {
	const parts = because.filter(inBar), knobs = because.filter((reason) => !inBar(reason));
	const words = reasons === "popularity" ? "popular with everybody" : !because.length && "nothing on the shelf by itself";
	return div({ class: "reasons" },
		div({ class: "bar", "aria-hidden": "true" }, parts.map(({ weight }, place) => span({ class: `p${place}`, style: { width: `${(100 * weight) / longest}%` } }))),
		p(null, words || [
			parts.length > 0 && heard("because of "),
			parts.map(({ text }, place) => span({ class: `part p${place}` }, text, " ")),
			knobs.map(({ text }) => span({ class: "wish" }, knob(text), " "))]));
}

function row(one, longest) {
	const open = state.similar === one.item, spot = (what) => ({ "data-spot": `${what}-${one.rank}` });
	return li({ key: one.item, class: "row", "data-flip": one.item },
		span({ class: "rank", "aria-hidden": "true" }, one.rank),
		div({ class: "what" }, strong(null, one.name), about(one)),
		reasons(one, longest),
		div({ class: "acts" },
			plus(one, spot("add")),
			act("≈", `Similar to ${one.name}`, () => change({ similar: open ? "" : one.item }), { "aria-expanded": String(open), ...spot("like") }),
			act("×", `Not ${one.name}`, () => change({ hidden: [...state.hidden, one.item] }, true), spot("hide"))),
		open && similar());
}

export function similar() {
	const { data, error } = state.answers.similar ?? {}, words = `Similar to ${nameOf(state.similar)}`;
	return section({ class: "similar", "aria-label": words },
		div({ class: "head" }, b(null, words), button({ class: "cross", "aria-label": "Close", onclick: () => change({ similar: "" }) }, "×")),
		trouble(error),
		ul(null, (data?.items ?? []).filter(({ item }) => !state.shelf.includes(item)).map((one) => li({ key: one.item }, chip(one)))));
}

function lead(popular) {
	if (popular && state.shelf.length) return "The model knows nothing on the shelf, so these are the most popular.";
	if (popular) return "The shelf is empty, so these are the most popular. Pick one with + and the list becomes yours.";
	const words = inWords(state.now);
	return nTurned(state.now) ? `${words[0].toUpperCase()}${words.slice(1)}.` : "Everything at rest: the model’s own order.";
}

export function list() {
	const { data, error, ms } = state.answers.list ?? {}, items = data?.items ?? [], popular = data?.basis === "popularity";
	const longest = Math.max(...items.map(length), 1e-12);
	name(items);
	return view("list", popular ? "What everybody likes" : `After ${count(state.shelf.length, "thing")}, these`, data ? lead(popular) : "Making the list …",
		trouble(error),
		ol({ class: error ? "rows stale" : "rows" }, items.map((one) => row(one, longest))),
		div({ class: "below" },
			items.length === state.k && state.k < 100 && plain("Show more", () => change({ k: Math.min(100, state.k + 20) })),
			state.hidden.length > 0 && plain(`Bring back ${count(state.hidden.length, "hidden item")}`, () => change({ hidden: [] }, true))),
		items.length > 0 && p({ class: "note" },
			!popular && `Bars: what on your shelf speaks for an item, and how much. ${KINDS[items[0].reasons] ?? ""} `, `Made in ${Math.ceil(ms)} ms.`));
}
