// The list of recommendations with explanations, and the items similar to one of them.
import { count, number, tags } from "./dom.js";
import { condition, controlsOf, describe, endWords, isReranked, noFilters, sliders } from "./settings.js";
import { change, changeCurrent, isCurrent, nameOf, rememberNames, state } from "./store.js";
import { whyNot } from "./whynot.js";
import { addButton, addChip, alertBox, described, iconButton, screenReaderOnly, textButton, view } from "./parts.js";

const { b, button, div, li, ol, p, section, span, ul } = tags;
const PRECISION = {
	exact: "They are exact.",
	"left out": "They are estimates: how much the score drops without that item.",
	"partly exact": "They are exact for part of the model and estimates for the rest.",
};
const COLOURS = 6;

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

// A colour for each item of the history; of a long one, for those that matter most to the list.
export function colourOf(item) {
	const { data, sent } = state.answers.list ?? {}, history = sent?.history ?? [];
	const weights = {};
	if (history.length > COLOURS) for (const { because } of data?.items ?? []) for (const { items: [id], weight } of because) weights[id] = (weights[id] ?? 0) + weight;
	const place = [...history].sort((one, other) => (weights[other] ?? 0) - (weights[one] ?? 0)).indexOf(item);
	return place >= 0 && place < COLOURS ? `--c${place}` : "--soft";
}

// The length of a bar is the score; what other items take away is crossed out at its end. Scores after re-ranking, and
// those below 0, are logarithms: their exponentials are drawn.
const modelScore = ({ because, other }) => because.filter(inBar).reduce((sum, { weight }) => sum + weight, other ?? 0);
function lengths(items) {
	const scores = items.map(({ score }) => score), top = Math.max(...scores);
	const plain = Math.min(...scores) >= 0 && items.every((one) => Math.abs(modelScore(one) - one.score) <= 0.01 * top);
	const raised = items.map((one) => Math.max(positive(one), modelScore(one), 1e-12) / Math.max(modelScore(one), 1e-12));
	const found = scores.map((score, n) => raised[n] * (plain ? score / Math.max(top, 1e-12) : Math.exp(score - top))), longest = Math.max(...found, 1e-12);
	return new Map(items.map(({ item }, n) => [item, (100 * found[n]) / longest]));
}
const positive = ({ because }) => because.filter(inBar).reduce((sum, { weight }) => sum + weight, 0);

const NAMED = 3; // reasons in words
// The parts of a bar: all reasons, and everything else hatched.
function reasons({ because, other, reasons, users }, length) {
	const parts = because.filter(inBar), terms = because.map(term).filter(Boolean);
	const whole = Math.max(positive({ because }) + Math.max(other ?? 0, 0), 1e-12), against = Math.max(0, -(other ?? 0) / whole);
	const words = reasons === "popularity" ? count(users, "user") : !because.length && "no single item of your history";
	const colour = ({ items: [item] }) => ({ "--colour": `var(${colourOf(item)})` });
	return div({ class: "reasons" },
		div({ class: "bar", "aria-hidden": "true", style: { width: `${length}%` } },
			parts.map((part) => span({ style: { ...colour(part), width: `${(100 * part.weight) / whole}%` } })),
			against > 0.005 ? span({ class: "against", style: { width: `${100 * Math.min(1, against)}%` } }) : span({ class: "rest" })),
		p(null, words || [
			parts.length > 0 && screenReaderOnly("because of "),
			parts.slice(0, NAMED).map((part) => span({ class: "part", style: colour(part), dir: "auto" }, part.text, " ")),
			parts.length > NAMED && span({ class: "others" }, `and ${parts.length - NAMED} more `),
			against > 0.005 && screenReaderOnly(`; other items count against it: ${Math.round(100 * against)} % `),
			terms.map((text) => span({ class: "term" }, text, " "))]));
}

function row(one, length) {
	const open = state.similar === one.item, spot = (what) => ({ "data-spot": `${what}-${one.rank}` });
	return li({ key: one.item, class: "row", "data-flip": one.item },
		span({ class: "rank", "aria-hidden": "true" }, one.rank),
		described(one),
		reasons(one, length),
		div({ class: "acts" },
			addButton(one, spot("add")),
			iconButton("≈", `Similar to ${one.name}`, () => change({ similar: open ? "" : one.item }), { "aria-expanded": String(open), ...spot("like") }),
			iconButton("×", `Hide ${one.name}`, () => change({ hidden: [...state.hidden, one.item] }, true), spot("hide"))),
		open && similar());
}

export function similar() {
	const { data, sent, error } = state.answers.similar ?? {}, words = `Similar to ${nameOf(state.similar)}`;
	const items = sent?.item === state.similar ? data.items.filter(({ item, score }) => score > 0 && !state.history.includes(item)) : [];
	const empty = isCurrent("similar") ? "Nothing else is similar to it." : "Loading …";
	return section({ class: "similar", "aria-label": words },
		div({ class: "head" }, b({ dir: "auto" }, words), button({ class: "cross", "aria-label": "Close", "data-spot": "similar-close", onclick: close }, "×")),
		alertBox(error),
		items.length ? ul(null, items.map((one) => li({ key: one.item }, addChip(one)))) : !error && p({ class: "note" }, empty));
}

// Closes the similar items; the focus goes back to the button that opened them.
export function close() {
	const opener = document.querySelector("[data-spot][aria-expanded=true]");
	opener?.focus();
	change({ similar: "" });
}

// What the list is made from, by its own request.
function lead({ data, error, sent }) {
	if (!data) return error ? "" : "Loading the list …";
	if (data.basis === "popularity") return sent.history.length ? "The model knows none of the items in your history, so these are the most popular ones." : "Your history is empty. Add an item with + and the list becomes yours.";
	const words = describe(state.current);
	return words ? `${words[0].toUpperCase()}${words.slice(1)}.` : "No filters or re-ranking.";
}

// What re-ranking did to the list: new items, and the median number of users before and after.
function changes(items) {
	const plain = state.answers.plain?.data?.items;
	if (!isReranked(state.current) || !state.history.length || !plain?.length || !items.length || !isCurrent("plain") || !isCurrent("list")) return false;
	const middle = (all) => all.map(({ users }) => users).sort((one, other) => one - other)[Math.floor(all.length / 2)], before = new Set(plain.map(({ item }) => item));
	const fresh = items.filter(({ item }) => !before.has(item)).length;
	return p({ class: "changes" }, b(null, `${fresh} of ${count(items.length, "item")}`), ` ${fresh === 1 ? "is" : "are"} not in the list without re-ranking. Median popularity: `, b(null, number(middle(plain))), " → ", b(null, count(middle(items), "user")), ".");
}

export function list() {
	const answer = state.answers.list ?? {}, { data, error, passing, sent } = answer, items = (passing || !error) && data?.items || [], popular = data?.basis === "popularity", length = items.length && lengths(items);
	rememberNames(items);
	return view("list", popular ? "Most popular items" : data ? `Based on ${count(sent.history.length - data.unknown.length, "item")}` : "Recommendations", lead(answer),
		alertBox(error),
		changes(items),
		ol({ class: error ? "rows stale" : "rows" }, items.map((one) => row(one, length.get(one.item)))),
		div({ class: "below" },
			error && !passing && condition(state.current, state.model.columns) && textButton("Remove the filters", () => changeCurrent(noFilters(), true)),
			items.length === state.k && state.k < 100 && textButton("Show more", () => change({ k: Math.min(100, state.k + 20) }, true)),
			state.hidden.length > 0 && textButton(`Show ${count(state.hidden.length, "hidden item")}`, () => change({ hidden: [] }, true))),
		state.history.length > 0 && whyNot(),
		items.length > 0 && p({ class: "note" }, "+ adds an item to your history, ≈ shows similar ones, × hides it. ",
			!popular && ["A bar is as long as the score. Each colour is an item of your history; ", span({ class: "bar sample" }, span({ class: "rest" })), ` is everything else, a crossed-out end what other items take away. ${PRECISION[items[0].reasons] ?? ""} `]));
}
