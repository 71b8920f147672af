// The list of recommendations with explanations, and the items similar to one of them.
import { count, tags } from "./dom.js";
import { controlsOf, describe, endWords, sliders } from "./settings.js";
import { change, nameOf, rememberNames, state } from "./store.js";
import { about, addButton, addChip, alertBox, iconButton, screenReaderOnly, textButton, view } from "./parts.js";

const { b, button, div, li, ol, p, section, span, strong, ul } = tags;
const PRECISION = {
	exact: "They are exact and add up to the score.",
	"left out": "They are estimates: how much the score drops without that item.",
	"partly exact": "They are exact for part of the model and estimates for the rest.",
};

// Reasons in units of the score form the bar. Terms of re-ranking have another unit: they are only named.
function term({ items, text }) {
	if (items.length) return "";
	const control = sliders().find(({ name }) => name === text), column = state.model.columns.find(({ name }) => text.startsWith(`${name}: `));
	if (control) return `+ ${endWords(control, state.current[control.name])}`;
	if (!column) return "";
	const value = text.slice(column.name.length + 2), less = controlsOf("weights").some(({ name }) => state.current[name][column.name]?.[value] < 0);
	return `${less ? "−" : "+"} ${value}`;
}
const inBar = (reason) => !term(reason);
const barLength = ({ because }) => because.filter(inBar).reduce((sum, { weight }) => sum + weight, 0);

function reasons({ because, reasons }, longest) {
	const parts = because.filter(inBar), terms = because.map(term).filter(Boolean);
	const words = reasons === "popularity" ? "popular with everybody" : !because.length && "no single item of your history";
	return div({ class: "reasons" },
		div({ class: "bar", "aria-hidden": "true" }, parts.map(({ weight }, place) => span({ class: `p${place}`, style: { width: `${(100 * weight) / longest}%` } }))),
		p(null, words || [
			parts.length > 0 && screenReaderOnly("because of "),
			parts.map(({ text }, place) => span({ class: `part p${place}` }, text, " ")),
			terms.map((text) => span({ class: "term" }, text, " "))]));
}

function row(one, longest) {
	const open = state.similar === one.item, spot = (what) => ({ "data-spot": `${what}-${one.rank}` });
	return li({ key: one.item, class: "row", "data-flip": one.item },
		span({ class: "rank", "aria-hidden": "true" }, one.rank),
		div({ class: "what" }, strong(null, one.name), about(one)),
		reasons(one, longest),
		div({ class: "acts" },
			addButton(one, spot("add")),
			iconButton("≈", `Similar to ${one.name}`, () => change({ similar: open ? "" : one.item }), { "aria-expanded": String(open), ...spot("like") }),
			iconButton("×", `Hide ${one.name}`, () => change({ hidden: [...state.hidden, one.item] }, true), spot("hide"))),
		open && similar());
}

export function similar() {
	const { data, error } = state.answers.similar ?? {}, words = `Similar to ${nameOf(state.similar)}`;
	return section({ class: "similar", "aria-label": words },
		div({ class: "head" }, b(null, words), button({ class: "cross", "aria-label": "Close", onclick: () => change({ similar: "" }) }, "×")),
		alertBox(error),
		ul(null, (data?.items ?? []).filter(({ item }) => !state.history.includes(item)).map((one) => li({ key: one.item }, addChip(one)))));
}

function lead(popular) {
	if (popular && state.history.length) return "The model knows none of the items in your history, so these are the most popular ones.";
	if (popular) return "Your history is empty. Add an item with + and the list becomes yours.";
	const words = describe(state.current);
	return words ? `${words[0].toUpperCase()}${words.slice(1)}.` : "No filters or re-ranking.";
}

export function list() {
	const { data, error, ms } = state.answers.list ?? {}, items = data?.items ?? [], popular = data?.basis === "popularity";
	const longest = Math.max(...items.map(barLength), 1e-12);
	rememberNames(items);
	return view("list", popular ? "Most popular items" : `Based on ${count(state.history.length, "item")}`, data ? lead(popular) : "Loading the list …",
		alertBox(error),
		ol({ class: error ? "rows stale" : "rows" }, items.map((one) => row(one, longest))),
		div({ class: "below" },
			items.length === state.k && state.k < 100 && textButton("Show more", () => change({ k: Math.min(100, state.k + 20) })),
			state.hidden.length > 0 && textButton(`Show ${count(state.hidden.length, "hidden item")}`, () => change({ hidden: [] }, true))),
		items.length > 0 && p({ class: "note" },
			!popular && `Bars show how much each item of your history contributes. ${PRECISION[items[0].reasons] ?? ""} `, `Computed in ${Math.ceil(ms)} ms.`));
}
